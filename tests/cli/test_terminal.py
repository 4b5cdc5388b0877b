"""Answers to interrupts of `ambient run` that come from a script: too few, too many, and wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ASKING = """
from ambient_runner import PlatformBridge
from ambient_runner.bridges.base import FrameworkCapabilities
from ambient_runner.errors import InvalidInput

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}

def interrupted(input, *interrupts):
    outcome = {"type": "interrupt", "interrupts": list(interrupts)}
    return {"type": "RUN_FINISHED", "threadId": input.thread_id, "runId": input.run_id, "outcome": outcome}

async def run(input):
    if input.resume:
        text = "; ".join(f"{entry.status} {entry.payload}" for entry in input.resume)
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": text}
        return
    count = {"id": "i1", "reason": "input_required", "message": "How many?", "responseSchema": COUNT}
    yield interrupted(input, count, {"id": "i2", "reason": "confirmation", "message": "Sure?"})

class Adapter:
    def run(self, input):
        return run(input)

    async def interrupt(self):
        pass

class Refusing(PlatformBridge):
    def capabilities(self):
        return FrameworkCapabilities()

    def create_adapter(self, ctx):
        return Adapter()

    def check_run(self, run):
        if any(entry.status == "resolved" for entry in run.input.resume or ()):
            raise InvalidInput("Not that.")
"""


@pytest.fixture
def run(ambient: Callable[..., Any], project: Callable[..., None]) -> Callable[..., tuple[int, str, str]]:
    project(asking=ASKING)

    def call(agent: str, lines: str) -> tuple[int, str, str]:
        return ambient("run", f"mine=asking:{agent}", "hi", "--thread", "t1", stdin=lines)

    return call


def test_one_line_answers_the_demo(ambient: Callable[..., Any]) -> None:
    """`printf 'y\\n' | ambient run …` is what the hint says, and it cancelled the interrupt: the comment was missing."""
    code, out, _ = ambient("run", "demo", "approve deploy", stdin="y\n")
    assert (code, "Approved: I may deploy." in out) == (0, True)


def test_a_script_that_repeats_a_wrong_line_is_given_up(run: Callable[..., tuple[int, str, str]]) -> None:
    """It was prompted for ever. What comes after the wrong lines is no answer to the next interrupt."""
    code, out, err = run("run", "y\n" * 100)
    assert (code, out.count("count [integer]: ")) == (3, 10)
    assert "cancelled None; cancelled None" in out
    assert "10 answers in a row were refused" in err


def test_a_script_whose_answers_the_agent_refuses_is_given_up(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("Refusing", "1\ny\n" * 100)
    assert (code, out.count("Not that.")) == (3, 10)
    assert ("10 answers in a row were refused" in err, "--thread t1" in err) == (True, True)


def test_wrong_lines_before_a_valid_one_are_only_refused(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("run", "x\n" * 9 + "1\n" + "y\n")
    assert (code, "resolved {'count': 1}; resolved {'approved': True}" in out) == (0, True)
