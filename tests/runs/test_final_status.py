"""The status that a run leaves in the thread's row: the same as its view has, also if the run began with something open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ambient_runner.errors import RunInterrupted
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Fact
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.projections.thread_view import INPUT, RUN_OWNER
from ambient_runner.protocol.events import (
    Interrupt,
    Interrupted,
    ResumeEntry,
    RunFinished,
    RunStarted,
    TextMessageStart,
    Tool,
    ToolCallEnd,
    ToolCallStart,
    ToolMessage,
    encode_event,
)
from ambient_runner.runs.maintenance import write_abandoned_end
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from tests.world import KEY, ScriptedAgent, run_once, runner_of, said, user

ANSWER = ResumeEntry(interrupt_id="i1", status="resolved", payload=True)
TOOLS = [Tool(name="paint", description="", parameters={})]


async def statuses(runner: Runner) -> tuple[str, str]:
    """The status in the row, and that of the view."""
    info = await runner.ledger.get_thread(KEY)
    assert info is not None
    return info.status, thread_status(await runner.view_thread(KEY))


def asks(number: int) -> RunInterrupted:
    return RunInterrupted([Interrupt(id=f"i{number}", reason="confirmation")])


@pytest.mark.parametrize(
    ("on_resume", "left"),
    [
        ("answers", "finished"),
        ("asks again", "waiting"),
        ("fails at once", "waiting"),
        ("fails after it has acted", "failed"),
    ],
)
async def test_a_resumed_run_leaves_the_status_of_the_thread(on_resume: str, left: str) -> None:
    async def script(run: Run) -> AsyncIterator[Any]:
        if not run.input.resume:
            for event in said("m1", "May I?"):
                yield event
            raise asks(1)
        if on_resume != "fails at once":
            for event in said("m2", "so"):
                yield event
        if on_resume == "asks again":
            raise asks(2)
        if on_resume != "answers":
            raise RuntimeError("no")

    async with runner_of(ScriptedAgent(script)) as runner:
        await run_once(runner, user("u1"))
        waiting = await statuses(runner)
        await run_once(runner, resume=[ANSWER])
        assert (waiting, await statuses(runner)) == (("waiting", "waiting"), (left, left))


async def test_a_run_that_gets_one_of_two_results_leaves_the_thread_waiting() -> None:
    async def script(run: Run) -> AsyncIterator[Any]:
        if len(run.input.messages) == 1:
            for call in ("c1", "c2"):
                yield ToolCallStart(tool_call_id=call, tool_call_name="paint")
                yield ToolCallEnd(tool_call_id=call)
        else:
            for event in said("m2", "painted"):
                yield event

    seen: list[tuple[str, str]] = []
    results = [ToolMessage(id=f"r{number}", tool_call_id=f"c{number}", content="done") for number in (1, 2)]
    async with runner_of(ScriptedAgent(script)) as runner:
        for messages in ([user("u1")], [user("u1"), results[0]], [user("u1"), *results]):
            await run_once(runner, *messages, tools=TOOLS)
            seen.append(await statuses(runner))
    assert seen == [("waiting", "waiting"), ("waiting", "waiting"), ("finished", "finished")]


async def test_a_new_message_in_place_of_results_ends_the_wait() -> None:
    async def script(run: Run) -> AsyncIterator[Any]:
        if len(run.input.messages) == 1:
            yield ToolCallStart(tool_call_id="c1", tool_call_name="paint")
            yield ToolCallEnd(tool_call_id="c1")
        else:
            raise RuntimeError("no")

    async with runner_of(ScriptedAgent(script)) as runner:
        await run_once(runner, user("u1"), tools=TOOLS)
        waiting = await statuses(runner)
        await run_once(runner, user("u2"), tools=TOOLS)
        assert (waiting, await statuses(runner)) == (("waiting", "waiting"), ("failed", "failed"))


@pytest.mark.parametrize(("has_acted", "left"), [(True, "failed"), (False, "waiting")])
async def test_recovery_leaves_the_status_of_the_thread(has_acted: bool, left: str) -> None:
    """A run that answers an interrupt loses its process, before or after it has acted on the answer."""
    begun = Fact(owner=RUNTIME, kind="", body=encode_event(RunStarted(thread_id="t", run_id="r")))
    answers = Fact(owner=RUN_OWNER, kind=INPUT, body=b'{"answers":["i1"]}')
    asked = RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[Interrupt(id="i1", reason="x")]))
    async with MemoryLedger() as ledger:
        async with await ledger.acquire_lease(KEY, "first") as writer:
            await writer.begin_run([begun], run_id="r", agent="agent", claim=None)
            writer.append(encode_event(asked))
            await writer.finish_run("waiting")
        async with await ledger.acquire_lease(KEY, "dead") as writer:
            await writer.begin_run([answers, begun], run_id="r", agent="agent", claim=None)
            if has_acted:
                writer.append(encode_event(TextMessageStart(message_id="m1")))
        before, dead = await ledger.get_thread(KEY), await ledger.get_run(KEY, "dead")
        assert dead is not None
        assert await write_abandoned_end(ledger, dead)
        after = await ledger.get_thread(KEY)
    assert before is not None
    assert after is not None
    assert (before.status, after.status) == ("running", left)
