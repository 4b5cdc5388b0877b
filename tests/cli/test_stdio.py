"""Commands whose standard input or output is closed, cannot be read or written, or has lost its reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from ambient_runner.cli.serve import announce_server
from ambient_runner.cli.stdio import use_standard_streams
from ambient_runner.config import Settings
from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

AMBIENT = str(Path(sys.executable).with_name("ambient"))


def shell(tmp_path: Path, script: str) -> tuple[int, str, str]:
    """Run a script in which `$AMBIENT` is the command. Return its exit code and what it wrote."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AMBIENT_")}
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**clean, "AMBIENT": AMBIENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("redirection", ["<&-", "0>written"])
def test_input_that_cannot_be_read_is_an_input_that_has_ended(tmp_path: Path, redirection: str) -> None:
    """It was a traceback and exit code 1."""
    code, out, err = shell(tmp_path, f"$AMBIENT run demo 'approve deploy' --thread t1 {redirection}")
    assert (code, "No answer: cancelled." in out, len(err.splitlines())) == (3, True, 1)
    assert "standard input has ended" in err


@pytest.mark.parametrize("redirection", ["<&-", "0>written", "</dev/null"])
def test_without_input_there_is_no_message(tmp_path: Path, redirection: str) -> None:
    code, out, err = shell(tmp_path, f"$AMBIENT run demo - {redirection}")
    assert (code, out, len(err.splitlines()), "no message" in err) == (2, "", 1, True)


def test_a_run_whose_reader_has_gone_is_stopped_and_ends_as_if_by_sigpipe(tmp_path: Path) -> None:
    script = "$AMBIENT run demo 'count 1000 every 5ms' --thread t1 | head -c 10 >first; exit ${PIPESTATUS[0]}"
    assert shell(tmp_path, script) == (141, "", "")
    _, out, _ = shell(tmp_path, "$AMBIENT threads export t1")
    assert ('"type":"cancelled"' in out.splitlines()[-1], out.count('"RUN_FINISHED"') > 0) == (True, True)


def test_a_closed_output_is_one_line(tmp_path: Path) -> None:
    code, out, err = shell(tmp_path, "$AMBIENT run demo help --thread t1 >&-")
    assert (code, out, len(err.splitlines()), "Standard output" in err) == (1, "", 1, True)


def closed() -> TextIO | None:
    return None


def full() -> TextIO | None:
    return Path("/dev/full").open("w")


def without_reader() -> TextIO | None:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


COMMANDS = [
    ("run", "demo", "help", "--thread", "t2"),
    ("threads", "list"),
    ("threads", "show", "t1"),
    ("threads", "tail", "t1", "--until-idle"),
    ("threads", "export", "t1"),
    ("doctor",),
    ("--version",),
    ("--help",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize(("output", "expected"), [(closed, 1), (full, 1), (without_reader, 141)])
def test_every_command_ends_quietly_if_its_output_cannot_be_written(
    ambient: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    output: Callable[[], TextIO | None],
    expected: int,
) -> None:
    ambient("run", "demo", "say hi", "--thread", "t1")
    stream = output()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        code, out, err = ambient(*command)
    if stream is not None:
        stream.close()
    lines = [line for line in err.splitlines() if not line.startswith(("Continue with", "Wrote"))]
    assert (code, out, len(lines)) == (expected, "", 0 if expected == 141 else 1)


def test_a_server_needs_no_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with use_standard_streams():
        announce_server("http://127.0.0.1:8000", Settings(), ["demo"])
