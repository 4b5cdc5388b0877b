"""`ambient run` on the user's own machine: how to go on, what was left out, and why a run failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

AMBIENT = str(Path(sys.executable).with_name("ambient"))

AGENT = """
from ambient_runner.errors import BridgeError
from ambient_runner.protocol.events import Custom, RunError

class NoMilk(BridgeError):
    "There is no milk. Buy some."
    code = "NO_MILK"

async def fails(input):
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Well, "}
    helper()

def helper():
    raise ValueError("no such customer: hunter2-hunter2")

async def fails_as_known(input):
    try:
        helper()
    except ValueError as error:
        raise NoMilk from error
    yield

async def ends_with_an_error(input):
    yield {"type": "RUN_ERROR", "message": "a text of some exception"}

async def says_too_much(input):
    yield {"type": "CUSTOM", "name": "x", "value": "x" * (9 << 20)}
"""
LINE = next(at for at, line in enumerate(AGENT.splitlines(), 1) if "no such customer" in line)


@pytest.fixture(autouse=True)
def agent(project: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    project(failing_agent=AGENT)
    monkeypatch.setenv("CUSTOMER_PASSWORD", "hunter2-hunter2")


def child(tmp_path: Path, *arguments: str, **settings: str) -> tuple[int, str, str]:
    """The command in a process of its own, whose log goes where a person sees it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AMBIENT_")}
    ended = subprocess.run(
        [AMBIENT, *arguments, "--thread", "t1"],
        cwd=tmp_path,
        env=clean | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_the_thread_is_named_once_so_that_one_can_go_on_with_it(ambient: Callable[..., Any]) -> None:
    code, out, err = ambient("run", "demo", "say hello")
    thread = re.fullmatch(r"Continue with --thread (cli-[0-9a-f]+)\n", err)
    assert (code, out, bool(thread)) == (0, "hello\n", True)
    assert thread is not None
    _, out, err = ambient("run", "demo", "say again", "--thread", thread[1])
    assert (out, err) == ("again\n", "")
    assert ambient("threads", "show", thread[1])[1].count("user:") == 2


def test_a_thread_that_is_gone_afterwards_is_not_named(ambient: Callable[..., Any]) -> None:
    assert ambient("run", "demo", "say hello", "--store", "memory://") == (0, "hello\n", "")


def test_why_an_agent_failed_is_said_with_its_own_line_and_without_ours(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:fails", "hi")
    assert (code, out) == (1, "Well, \n[error] The agent failed. (agent_error)\n")
    assert err == f"ValueError: no such customer: [redacted] (failing_agent.py, line {LINE})\n"


def test_a_known_failure_is_its_sentence_and_its_reason(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:fails_as_known", "hi")
    assert (code, out) == (1, "[error] There is no milk. Buy some. (NO_MILK)\n")
    assert err == f"ValueError: no such customer: [redacted] (failing_agent.py, line {LINE})\n"


def test_the_traceback_is_in_the_log_for_who_wants_everything(tmp_path: Path) -> None:
    _, _, err = child(tmp_path, "run", "mine=failing_agent:fails", "hi", AMBIENT_LOG_LEVEL="debug")
    assert ("Traceback (most recent call last)" in err, "hunter2" in err) == (True, False)


def test_an_agent_that_ends_with_an_error_of_its_own_is_told_in_one_line(tmp_path: Path) -> None:
    code, out, err = child(tmp_path, "run", "mine=failing_agent:ends_with_an_error", "hi")
    assert (code, out) == (1, "[error] The agent failed. (agent_error)\n")
    assert (len(err.splitlines()), "a text of some exception" in err) == (1, True)


def test_the_reason_is_told_here_and_not_kept_in_the_thread(ambient: Callable[..., Any]) -> None:
    ambient("run", "mine=failing_agent:fails", "hi", "--thread", "t1")
    _, kept, _ = ambient("threads", "export", "t1")
    assert ("RUN_ERROR" in kept, "agent_error" in kept, "no such customer" in kept) == (True, True, False)


def test_what_was_left_out_is_said(ambient: Callable[..., Any]) -> None:
    code, out, _ = ambient("run", "mine=failing_agent:says_too_much", "hi", "--thread", "t1")
    assert (code, out) == (0, "[left out] CUSTOM: too_large\n")
