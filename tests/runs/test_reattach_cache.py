from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ambient_runner.bridges.toolkit import Composer
from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Batch, Fact, ThreadKey
from ambient_runner.protocol.events import (
    Event,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    encode_event,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs import reattach_cache
from ambient_runner.runs.reattach_cache import ReopeningPoints
from tests.protocol.strategies import REMARKS, Remark, compose, numbered
from tests.world import KEY, said

BEGUN = RunStarted(thread_id="t", run_id="r", metadata={"traceId": "abc"})
ENDED = RunFinished(thread_id="t", run_id="r")

RUN: list[Event] = [
    BEGUN,
    StepStarted(step_name="think"),
    ReasoningStart(message_id="r1"),
    ReasoningMessageStart(message_id="r1"),
    ReasoningMessageContent(message_id="r1", delta="hm"),
    ReasoningMessageEnd(message_id="r1"),
    ReasoningEnd(message_id="r1"),
    StepFinished(step_name="think"),
    TextMessageStart(message_id="m1", role="assistant", name="bot"),
    TextMessageContent(message_id="m1", delta="let"),
    TextMessageEnd(message_id="m1"),
    SubagentStarted(subagent_run_id="s1", name="helper"),
    ToolCallStart(tool_call_id="c1", tool_call_name="f", subagent_run_id="s1"),
    ToolCallArgs(tool_call_id="c1", delta="{", subagent_run_id="s1"),
    ToolCallArgs(tool_call_id="c1", delta="}", subagent_run_id="s1"),
    ToolCallEnd(tool_call_id="c1", subagent_run_id="s1"),
    ToolCallResult(message_id="x1", tool_call_id="c1", content="ok", subagent_run_id="s1"),
    SubagentFinished(subagent_run_id="s1"),
    ENDED,
]


def after(event: Event) -> int:
    """The seq of an event of RUN."""
    return RUN.index(event) + 1


@asynccontextmanager
async def stored(*runs: list[Event]) -> AsyncGenerator[Ledger, None]:
    """A ledger whose thread has these runs; entry n is the nth event."""
    async with MemoryLedger() as ledger:
        for number, events in enumerate(runs):
            async with await ledger.acquire_lease(KEY, f"k{number}") as writer:
                begun = Fact(owner=RUNTIME, kind="", body=encode_event(events[0]))
                await writer.begin_run([begun], run_id="r", agent="agent", claim=None)
                for event in events[1:]:
                    writer.append(encode_event(event))
                await (writer.finish_run() if isinstance(events[-1], RunFinished) else writer.flush())
        yield ledger


@pytest.mark.parametrize(
    ("last", "opened"),
    [
        (BEGUN, []),
        (
            ReasoningMessageContent(message_id="r1", delta="hm"),
            [
                StepStarted(step_name="think"),
                ReasoningStart(message_id="r1"),
                ReasoningMessageStart(message_id="r1"),
            ],
        ),
        (
            TextMessageContent(message_id="m1", delta="let"),
            [TextMessageStart(message_id="m1", role="assistant", name="bot")],
        ),
        (TextMessageEnd(message_id="m1"), []),
        (
            ToolCallArgs(tool_call_id="c1", delta="{", subagent_run_id="s1"),
            [
                SubagentStarted(subagent_run_id="s1", name="helper"),
                ToolCallStart(tool_call_id="c1", tool_call_name="f", parent_message_id="c1", subagent_run_id="s1"),
            ],
        ),
    ],
    ids=["begun", "reasoning", "message", "between messages", "tool call"],
)
async def test_open_items_are_reopened_empty(last: Event, opened: list[Event]) -> None:
    async with stored(RUN) as ledger:
        assert await ReopeningPoints().reopen_events(ledger, KEY, after(last)) == [BEGUN, *opened]


async def test_wherever_a_reader_resumes_it_gets_a_legal_stream() -> None:
    async with stored(RUN) as ledger:
        for seq in range(1, len(RUN)):
            verifier = Verifier()
            for event in (*await ReopeningPoints().reopen_events(ledger, KEY, seq), *RUN[seq:]):
                verifier.check(event)
            verifier.finish()


async def test_between_runs_there_is_nothing_to_open() -> None:
    second: list[Event] = [RunStarted(thread_id="t", run_id="r"), *said("m2", "x"), ENDED]
    async with stored(RUN, second) as ledger:
        assert await ReopeningPoints().reopen_events(ledger, KEY, len(RUN)) == []
        assert await ReopeningPoints().reopen_events(ledger, KEY, len(RUN) + len(second)) == []
        assert await ReopeningPoints().reopen_events(ledger, KEY, len(RUN) + 2) == [second[0], second[1]]


async def test_a_run_that_is_still_active_is_reopened() -> None:
    begun: list[Event] = [BEGUN, *said("m1", "x")[:2]]
    async with stored(begun) as ledger:
        assert await ReopeningPoints().reopen_events(ledger, KEY, 3) == [
            BEGUN,
            TextMessageStart(message_id="m1", role="assistant"),
        ]


async def test_an_unknown_thread_has_nothing_to_open() -> None:
    async with MemoryLedger() as ledger:
        assert await ReopeningPoints().reopen_events(ledger, KEY, 5) == []


def folded_from_the_start(events: list[Event], seq: int) -> list[Event]:
    repairer = Repairer("t", "r")
    for event in events[:seq]:
        repairer.feed(event)
    return [events[0], *repairer.reopening_events()]


@settings(deadline=None)
@given(remarks=REMARKS, distance=st.integers(1, 20), seqs=st.lists(st.integers(1, 200), max_size=30))
async def test_points_change_nothing_wherever_readers_resume(
    remarks: list[Remark], distance: int, seqs: list[int]
) -> None:
    repairer = Repairer("t", "r")
    said = [BEGUN, *compose(Composer(numbered()), remarks)]
    events = [legal for event in said for legal in repairer.feed(event)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reattach_cache, "_MIN_DISTANCE", distance)
        patch.setattr(reattach_cache, "_MAX_POINTS", 4)
        async with stored(events) as ledger:
            points = ReopeningPoints()
            for seq in (min(seq, len(events)) for seq in seqs):
                assert await points.reopen_events(ledger, KEY, seq) == folded_from_the_start(events, seq)


async def test_a_run_that_was_resumed_is_not_read_from_its_start_again() -> None:
    run: list[Event] = [BEGUN, *said("m1", *("x" for _ in range(5000)))[:-1]]
    read: list[int] = []
    async with stored(run) as ledger:
        points = ReopeningPoints()
        expected = await points.reopen_events(ledger, KEY, 4500)
        read_batches = ledger.read_batches

        async def recording(key: ThreadKey, after: int, **options: Any) -> list[Batch]:
            read.append(after)
            return await read_batches(key, after, **options)

        ledger.read_batches = recording  # pyright: ignore[reportAttributeAccessIssue]
        assert await points.reopen_events(ledger, KEY, 4600) == expected
    assert min(read) >= 4600 - 2 * reattach_cache._MIN_DISTANCE
