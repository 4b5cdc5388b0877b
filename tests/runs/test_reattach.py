from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ambient_runner.ledger.base import Ledger
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import RUNTIME, Fact, ThreadInfo
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    Custom,
    Event,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    StateSnapshot,
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
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.reattach import gap_events, reopen_events
from tests.world import KEY, said, user

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
                ToolCallStart(tool_call_id="c1", tool_call_name="f", subagent_run_id="s1"),
            ],
        ),
    ],
    ids=["begun", "reasoning", "message", "between messages", "tool call"],
)
async def test_open_items_are_reopened_empty(last: Event, opened: list[Event]) -> None:
    async with stored(RUN) as ledger:
        assert await reopen_events(ledger, KEY, after(last)) == [BEGUN, *opened]


async def test_wherever_a_reader_resumes_it_gets_a_legal_stream() -> None:
    async with stored(RUN) as ledger:
        for seq in range(1, len(RUN)):
            verifier = Verifier()
            for event in (*await reopen_events(ledger, KEY, seq), *RUN[seq:]):
                verifier.check(event)
            verifier.finish()


async def test_between_runs_there_is_nothing_to_open() -> None:
    second: list[Event] = [RunStarted(thread_id="t", run_id="r"), *said("m2", "x"), ENDED]
    async with stored(RUN, second) as ledger:
        assert await reopen_events(ledger, KEY, len(RUN)) == []
        assert await reopen_events(ledger, KEY, len(RUN) + len(second)) == []
        assert await reopen_events(ledger, KEY, len(RUN) + 2) == [second[0], second[1]]


async def test_a_run_that_is_still_active_is_reopened() -> None:
    begun: list[Event] = [BEGUN, *said("m1", "x")[:2]]
    async with stored(begun) as ledger:
        assert await reopen_events(ledger, KEY, 3) == [BEGUN, TextMessageStart(message_id="m1", role="assistant")]


async def test_an_unknown_thread_has_nothing_to_open() -> None:
    async with MemoryLedger() as ledger:
        assert await reopen_events(ledger, KEY, 5) == []


def test_a_gap_is_a_small_run_that_contains_what_was_missed() -> None:
    view = ThreadView()
    view.apply_event("k", StateSnapshot(snapshot={"a": 1, "secret": 2}))
    view.apply_event("k", MessagesSnapshot(messages=[user("u1")]))
    info = ThreadInfo(key=KEY, agent="agent", epoch="e", created=0, updated=0, first=9, last=20)
    events = gap_events(info, 3, view, frozenset({"secret"}))
    verifier = Verifier()
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert events[1:-1] == [
        Custom(name="ambient:gap", value={"after": 3, "before": 9}),
        MessagesSnapshot(messages=[user("u1")]),
        StateSnapshot(snapshot={"a": 1}),
    ]
