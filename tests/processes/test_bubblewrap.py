"""Finding out whether there is a sandbox on this machine, and saying why not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ambient_runner.processes.bubblewrap import (
    BubblewrapStatus,
    check_bubblewrap,
    describe_failure,
    find_bubblewrap,
    probe_bubblewrap,
)
from ambient_runner.processes.sandbox import Sandbox, sandboxed_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _fresh_check() -> Iterator[None]:
    check_bubblewrap.cache_clear()
    yield
    check_bubblewrap.cache_clear()


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_missing_program_is_named_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_bubblewrap() is None
    assert "apt-get install bubblewrap" in check_bubblewrap().reason


def test_without_the_program_nothing_is_started_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        sandboxed_command(["agent"], Sandbox(workspace=tmp_path, home=tmp_path))


def test_other_systems_have_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_bubblewrap() is None
    assert "Linux" in check_bubblewrap().reason


def test_a_program_that_works_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = _program(tmp_path / "bwrap", f"echo run >> {tmp_path}/runs")
    assert check_bubblewrap() == check_bubblewrap() == BubblewrapStatus(path=str(program), reason="")
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("bwrap: No permissions to create new namespace, likely because …", "User namespaces"),
        ("bwrap: setting up uid map: Permission denied", "User namespaces"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "User namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: Unknown option --unshare-cgroup-try", "too old"),
        ("bwrap: something new", ""),
        ("", "no message"),
    ],
)
def test_a_failure_comes_with_advice(tmp_path: Path, message: str, advice: str) -> None:
    program = _program(tmp_path / "bwrap", f'echo "{message}" >&2; exit 1')
    reason = probe_bubblewrap(str(program))
    assert reason == describe_failure(message)
    assert message in reason
    assert advice in reason


def test_a_program_that_cannot_be_started_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("")
    assert probe_bubblewrap(str(tmp_path / "bwrap"))
