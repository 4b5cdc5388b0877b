"""`ambient agents sessions`, with the fake agent."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ambient_runner.cli import agent_sessions
from ambient_runner.cli.main import app
from ambient_runner.errors import ConfigError, RunnerError
from tests.bridges.acp.world import fake_command


def _store_session(directory: Path, name: str, cwd: str, title: str = "") -> None:
    directory.mkdir(exist_ok=True)
    stored = {"id": name, "cwd": cwd, "prompts": [title] if title else []}
    (directory / f"{name}.json").write_text(json.dumps(stored))


def _list(tmp_path: Path, *arguments: str, **options: str) -> tuple[int, list[list[str]], str]:
    """Return the exit code, the cells of the table, and what standard error says."""
    config = tmp_path / "ambient.toml"
    command = fake_command(sessions=str(tmp_path / "sessions"), **options)
    config.write_text(f'[agents]\nmine = "acp:{shlex.join(command)}"\n')
    result = CliRunner().invoke(app, ["agents", "sessions", "mine", "--config", str(config), *arguments])
    message = result.exception.message if isinstance(result.exception, RunnerError) else ""
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in result.stdout.splitlines()]
    return result.exit_code, rows, f"{result.stderr}{message}"


HEADER = ["session", "title", "updated", "folder"]
UPDATED = "2026-01-02T03:04:05Z"


def test_the_sessions_of_the_agent_are_listed(tmp_path: Path) -> None:
    _store_session(tmp_path / "sessions", "one", "/a", "Fix the\x1b[31m tests\nand more")
    _store_session(tmp_path / "sessions", "two", "/b")
    assert _list(tmp_path) == (
        0,
        [HEADER, ["one", "Fix the[31m tests and more", UPDATED, "/a"], ["two", UPDATED, "/b"]],
        "",
    )


def test_only_those_of_a_folder_are_listed(tmp_path: Path) -> None:
    _store_session(tmp_path / "sessions", "one", str(tmp_path))
    _store_session(tmp_path / "sessions", "two", "/b")
    code, rows, _ = _list(tmp_path, "--cwd", str(tmp_path / "sessions" / ".."))
    assert (code, [row[0] for row in rows]) == (0, ["session", "one"])


def test_all_pages_are_read(tmp_path: Path) -> None:
    for number in range(5):
        _store_session(tmp_path / "sessions", f"s{number}", "/a")
    code, rows, error = _list(tmp_path, page="2")
    assert (code, [row[0] for row in rows], error) == (0, ["session", "s0", "s1", "s2", "s3", "s4"], "")


def test_a_list_that_is_too_long_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_sessions, "_MAX_SESSIONS", 3)
    for number in range(5):
        _store_session(tmp_path / "sessions", f"s{number}", "/a")
    code, rows, error = _list(tmp_path, page="2")
    assert (code, [row[0] for row in rows]) == (0, ["session", "s0", "s1", "s2"])
    assert error == "There are more than these 3. Choose a folder with --cwd.\n"


def test_an_agent_that_sends_pages_for_ever_is_given_up(tmp_path: Path) -> None:
    _store_session(tmp_path / "sessions", "one", "/a")
    code, rows, _ = _list(tmp_path, page="0")
    assert (code, rows) == (0, [["mine has no sessions."]])


def test_an_agent_without_sessions_says_so(tmp_path: Path) -> None:
    assert _list(tmp_path) == (0, [["mine has no sessions."]], "")


def test_an_agent_that_does_not_list_its_sessions_says_so(tmp_path: Path) -> None:
    assert _list(tmp_path, without="list") == (1, [], "mine does not offer a list of its sessions.\n")


def test_an_agent_that_ends_says_what_it_wrote(tmp_path: Path) -> None:
    code, rows, error = _list(tmp_path, exit="3")
    assert (code, rows) == (1, [])
    assert error == "The agent did not start: it has ended.\nfatal: the fake agent does not start"


SIGNED_OUT = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"result": {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"list": {}}}}}
    if request["method"] == "session/list":
        answer = {"error": {"code": -32000, "message": "Authentication required"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


def _fail(ambient: Callable[..., Any], tmp_path: Path, *arguments: str, **options: str) -> tuple[int, str]:
    """Return the exit code of the command with the fake agent, and what it says on standard error."""
    return _fail_with(ambient, tmp_path, fake_command(**options), *arguments)


def _fail_with(ambient: Callable[..., Any], tmp_path: Path, command: list[str], *arguments: str) -> tuple[int, str]:
    (tmp_path / "ambient.toml").write_text(f'[agents]\nmine = "acp:{shlex.join(command)}"\n')
    code, out, error = ambient("agents", "sessions", "mine", *arguments)
    assert out == ""
    return code, error


def test_a_failure_of_the_agent_is_no_wrong_argument(ambient: Callable[..., Any], tmp_path: Path) -> None:
    assert _fail(ambient, tmp_path, exit="3")[0] == 1


def test_an_agent_that_is_not_signed_in_says_what_to_type(ambient: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "signed_out.py").write_text(SIGNED_OUT)
    code, error = _fail_with(ambient, tmp_path, [sys.executable, "signed_out.py"])
    assert (code, error.splitlines()) == (
        1,
        [
            "The agent did not list its sessions: Authentication required (-32000). Sign it in: ambient agents login mine"
        ],
    )


def test_an_agent_of_another_version_of_the_protocol_is_refused(ambient: Callable[..., Any], tmp_path: Path) -> None:
    code, error = _fail(ambient, tmp_path, protocol="2")
    assert (code, "version 1" in error) == (1, True)


def test_a_folder_that_does_not_exist_is_a_wrong_argument(ambient: Callable[..., Any], tmp_path: Path) -> None:
    code, error = _fail(ambient, tmp_path, "--cwd", "missing")
    assert (code, len(error.splitlines()), "missing" in error) == (2, 1, True)


def test_an_agent_of_another_kind_has_no_sessions() -> None:
    result = CliRunner().invoke(app, ["agents", "sessions", "demo"])
    assert isinstance(result.exception, ConfigError)
