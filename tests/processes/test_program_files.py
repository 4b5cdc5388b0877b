"""The files that programs need which are installed below a home."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ambient_runner.processes.program_files import find_program_files, find_python_files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def _install(path: Path, content: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


def _link(path: Path, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_a_global_package_of_npm_needs_its_prefix_and_node(home: Path) -> None:
    prefix = home / ".nvm" / "versions" / "node" / "v22"
    _install(prefix / "lib" / "node_modules" / "agent" / "main.js", "#!/usr/bin/env -S node --no-warnings\n")
    link = _link(prefix / "bin" / "agent", "../lib/node_modules/agent/main.js")
    node = _install(prefix / "bin" / "node")
    found = find_program_files("agent", str(prefix / "bin"))
    assert set(found) == {link, node, home / ".nvm", prefix / "lib" / "node_modules"}


def test_a_local_package_needs_its_node_modules(home: Path) -> None:
    modules = home / "agents" / "node_modules"
    _install(modules / "agent" / "cli.js", "#!/opt/absent/node\n")
    link = _link(modules / ".bin" / "agent", "../agent/cli.js")
    assert set(find_program_files(str(link))) == {link, modules}


def test_a_script_of_a_virtual_environment_needs_the_environment(home: Path) -> None:
    venv = home / "tool"
    _install(venv / "pyvenv.cfg")
    python = _install(venv / "bin" / "python")
    script = _install(venv / "bin" / "agent", f"#!{python}\n")
    assert set(find_program_files("agent", str(venv / "bin"))) == {script, python, venv}


@pytest.mark.parametrize("place", ["bin/agent", ".local/bin/agent", "agent"])
def test_the_home_itself_is_never_needed(home: Path, place: str) -> None:
    for folder in ("lib", ".local/lib"):
        (home / folder).mkdir(parents=True)
    program = _install(home / place)
    assert find_program_files(str(program)) == [program]


def test_a_prefix_of_its_own_is_needed_as_a_whole(home: Path) -> None:
    (home / "opt" / "agent" / "lib").mkdir(parents=True)
    program = _install(home / "opt" / "agent" / "bin" / "agent")
    assert set(find_program_files(str(program))) == {program, home / "opt" / "agent"}


def test_a_program_that_is_not_there_needs_nothing(home: Path) -> None:
    assert find_program_files("absent", str(home)) == []


def test_scripts_that_start_each_other_end(home: Path) -> None:
    first, second = home / "first", home / "second"
    _install(first, f"#!{second}\n")
    _install(second, f"#!{first}\n")
    assert set(find_program_files(str(first))) == {first, second}


def test_our_own_interpreter_is_among_its_files() -> None:
    files = find_python_files()
    assert files[0] == Path(sys.executable)
    assert any(Path(sys.executable).resolve().is_relative_to(file) for file in files[1:])
