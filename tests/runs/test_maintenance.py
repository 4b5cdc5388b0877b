from __future__ import annotations

import msgspec

from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Fact, RunInfo
from ambient_runner.protocol.events import (
    Event,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunError,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    decode_event,
    encode_event,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.maintenance import write_abandoned_end
from tests.world import KEY


async def abandoned_run(ledger: Ledger, *events: Event, run: str = "dead") -> RunInfo:
    """A run that says this and whose owner is then gone."""
    async with await ledger.acquire_lease(KEY, run) as writer:
        begun = Fact(owner=RUNTIME, kind="", body=encode_event(RunStarted(thread_id="t", run_id="r")))
        await writer.begin_run([begun], run_id="r", agent="agent", claim=None)
        for event in events:
            writer.append(encode_event(event))
        await writer.flush()
    info = await ledger.get_run(KEY, run)
    assert info is not None
    return info


async def log(ledger: Ledger) -> list[Event]:
    """Everything in the thread, without times."""
    lines = [line for batch in await ledger.read_batches(KEY, 0) for line in batch.lines]
    return [msgspec.structs.replace(decode_event(line), timestamp=None) for line in lines]


async def test_everything_open_is_closed_and_the_run_ends_as_abandoned() -> None:
    written: list[Event] = [
        SubagentStarted(subagent_run_id="s1", name="helper"),
        StepStarted(step_name="think"),
        ReasoningStart(message_id="r1"),
        ReasoningMessageStart(message_id="r1"),
        ReasoningMessageContent(message_id="r1", delta="hm"),
        TextMessageStart(message_id="m1"),
        TextMessageContent(message_id="m1", delta="so"),
        ToolCallStart(tool_call_id="c1", tool_call_name="f", parent_message_id="m1"),
        ToolCallArgs(tool_call_id="c1", delta='{"a'),
    ]
    async with MemoryLedger() as ledger:
        info = await abandoned_run(ledger, *written)
        closed = await write_abandoned_end(ledger, info)
        events = await log(ledger)
        after = await ledger.get_run(KEY, "dead")
        left = await ledger.list_abandoned_runs()
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert closed
    assert events[: len(written) + 1] == [RunStarted(thread_id="t", run_id="r"), *written]
    closing = events[len(written) + 1 : -2]
    assert {type(event) for event in closing} <= {
        TextMessageEnd,
        ToolCallEnd,
        ReasoningMessageEnd,
        ReasoningEnd,
        StepFinished,
        SubagentFinished,
        SubagentError,
    }
    assert len(closing) == 6
    assert events[-2] == MessagesSnapshot(messages=[])
    assert isinstance(events[-1], RunError)
    assert events[-1].code == "run_abandoned"
    assert after is not None
    assert after.last == len(events)
    assert left == []


async def test_a_run_whose_thread_has_a_new_owner_is_left_to_it() -> None:
    async with MemoryLedger() as ledger:
        info = await abandoned_run(ledger)
        async with await ledger.acquire_lease(KEY, "dead"):
            assert not await write_abandoned_end(ledger, info)
        assert await log(ledger) == [RunStarted(thread_id="t", run_id="r")]


async def test_a_run_that_was_ended_meanwhile_does_not_end_twice() -> None:
    async with MemoryLedger() as ledger:
        info = await abandoned_run(ledger, TextMessageStart(message_id="m1"))
        first = await write_abandoned_end(ledger, info)
        events = await log(ledger)
        second = await write_abandoned_end(ledger, info)
        assert await log(ledger) == events
    assert (first, second) == (True, False)


async def test_only_the_dead_runs_own_events_are_replayed() -> None:
    async with MemoryLedger() as ledger:
        async with await ledger.acquire_lease(KEY, "before") as writer:
            begun = Fact(owner=RUNTIME, kind="", body=encode_event(RunStarted(thread_id="t", run_id="r")))
            await writer.begin_run([begun], run_id="r", agent="agent", claim=None)
            writer.append(encode_event(RunFinished(thread_id="t", run_id="r")))
            await writer.finish_run()
        info = await abandoned_run(ledger, TextMessageStart(message_id="m1"))
        await ledger.append_facts(KEY, [Fact(owner="someone", kind="noted", body=b"{}")])
        assert await write_abandoned_end(ledger, info)
        batches = await ledger.read_batches(KEY, info.first - 1)
    events = [decode_event(line) for batch in batches if batch.owner == RUNTIME for line in batch.lines]
    assert [type(event) for event in events] == [
        RunStarted,
        TextMessageStart,
        TextMessageEnd,
        MessagesSnapshot,
        RunError,
    ]
