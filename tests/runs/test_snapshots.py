"""Snapshots that an adapter asks for in the middle of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ambient_runner.ledger.records import Batch, ThreadKey
from ambient_runner.ledger.sqlite import SqliteLedger
from ambient_runner.projections.frames import snapshot_seqs
from ambient_runner.projections.private_entries import HISTORY_EVENT, correct_history
from ambient_runner.projections.redaction import REDACTED
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.protocol.events import (
    AssistantMessage,
    Custom,
    Event,
    Message,
    MessagesSnapshot,
    TextMessageChunk,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    is_terminal_line,
    type_of,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import ThreadEpoch, load_view
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, request, run_once, runner_of, said, user

SECRET = "sk-live-0123456789"


def saying(*events: Any, **options: Any) -> ScriptedAgent:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    return ScriptedAgent(script, **options)


async def snapshots(runner: Runner) -> list[list[Message]]:
    """Return the messages of each snapshot as readers receive it."""
    positions = [seq for batch in await runner.ledger.read_batches(KEY, 0) for seq in snapshot_seqs(batch)]
    return [(await load_view(runner.ledger, KEY, until=position)).transcript.messages() for position in positions]


def contents(messages: list[Message]) -> list[Any]:
    return [message.content for message in messages]


async def test_each_snapshot_has_its_position_and_contains_the_messages_until_then() -> None:
    first, *rest = said("m1", "a ", "b")
    call = [
        ToolCallStart(tool_call_id="c", tool_call_name="look", parent_message_id="m1"),
        ToolCallArgs(tool_call_id="c", delta="{}"),
        ToolCallEnd(tool_call_id="c"),
    ]
    agent = saying(first, SNAPSHOT_MARKER, rest[0], SNAPSHOT_MARKER, *rest[1:], *call[:2], SNAPSHOT_MARKER, call[2])
    async with runner_of(agent) as runner:
        events = await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    verifier = Verifier("t", "r")
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert [contents(messages) for messages in shown] == [["hi", ""], ["hi", "a "], ["hi", "a b"], ["hi", "a b"]]
    assert [type_of(event) for event in events].count("MESSAGES_SNAPSHOT") == 4


async def test_any_other_snapshot_of_an_adapter_is_absorbed() -> None:
    forged = MessagesSnapshot(messages=[user("forged")])
    async with runner_of(saying(MessagesSnapshot(messages=[]), forged, *said("m1", "a"))) as runner:
        events = await run_once(runner, user("u1"))
    assert [event for event in events if isinstance(event, MessagesSnapshot)] == [MessagesSnapshot(messages=[])]


async def test_middleware_cannot_bring_messages_in_by_a_snapshot() -> None:
    def forging(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                yield event
                yield MessagesSnapshot(messages=[user("forged")])

        return handle

    async with runner_of(saying(SNAPSHOT_MARKER, *said("m1", "a")), middleware=[forging]) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi"], ["hi", "a"]]


async def test_a_secret_split_by_a_snapshot_is_redacted() -> None:
    start, word, head, tail, end = said("m1", "so ", SECRET[:9], SECRET[9:])
    async with runner_of(
        saying(start, word, head, SNAPSHOT_MARKER, tail, end), dataclasses.replace(SETTINGS, secrets=(SECRET,))
    ) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi", "so "], ["hi", f"so {REDACTED}"]]


async def test_a_message_streamed_in_chunks_continues_after_a_snapshot() -> None:
    chunks = [TextMessageChunk(message_id="m1", role="assistant", delta="a "), TextMessageChunk(delta="b")]
    async with runner_of(saying(chunks[0], SNAPSHOT_MARKER, chunks[1])) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi", "a "], ["hi", "a b"]]


async def test_an_adapter_may_restate_the_conversation_and_clients_get_it_in_the_next_snapshot() -> None:
    restated = correct_history([user("u1"), AssistantMessage(id="m1", content="put right")])
    agent = saying(*said("m1", "wrong"), restated, SNAPSHOT_MARKER, *said("m2", "more"), restates_messages=False)
    async with runner_of(agent) as runner:
        events = await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi", "put right"], ["hi", "put right", "more"]]
    assert not [event for event in events if isinstance(event, Custom)]


async def test_middleware_cannot_restate_the_conversation_nor_lose_that_an_adapter_did() -> None:
    def forging(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            async for event in handler(run):
                if not isinstance(event, Custom):
                    yield event
                yield correct_history([user("forged")], removed_ids=["u1"])

        return handle

    restated = correct_history([user("u1"), AssistantMessage(id="m1", content="put right")])
    agent = saying(*said("m1", "wrong"), restated, restates_messages=False)
    async with runner_of(agent, middleware=[forging]) as runner:
        await run_once(runner, user("u1"))
        (shown,) = await snapshots(runner)
    assert contents(shown) == ["hi", "put right"]


async def test_an_invalid_restatement_changes_nothing() -> None:
    broken = Custom(name=HISTORY_EVENT, value={"messages": [{"role": "nobody"}]})
    async with runner_of(saying(*said("m1", "a"), broken, restates_messages=False)) as runner:
        await run_once(runner, user("u1"))
        (shown,) = await snapshots(runner)
        assert (await runner.view_thread(KEY)).memory is None
    assert contents(shown) == ["hi", "a"]


async def test_the_snapshot_of_a_run_that_is_read_live_needs_no_read_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's last transaction also releases the lease: its reader still finds the view that it has contributed to."""
    reads: list[str] = []
    ledger = SqliteLedger(tmp_path / "ledger.db")
    read_batches = ledger.read_batches

    async def count_reads(key: ThreadKey, after: int, **options: Any) -> list[Batch]:
        reads.append(key.id)
        return await read_batches(key, after, **options)

    monkeypatch.setattr(ledger, "read_batches", count_reads)
    steps = anyio.Event()

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        await steps.wait()
        for event in said("m1", "Hello ", "there."):
            yield event

    async with ledger, Runner(ledger, {"agent": ScriptedAgent(script)}, SETTINGS) as runner:
        started = await runner.start(request(user("u1")))
        thread = ThreadEpoch(started.thread, started.epoch)
        views = runner.reader_views(thread)
        async with ledger.tail(started.thread, started.after, epoch=started.epoch) as tail:
            steps.set()
            view = ThreadView()
            with unless_hung():
                while not view.seq:
                    for batch in await tail.next_batches():
                        views.contribute(batch)
                        if is_terminal_line(batch.lines[-1]):
                            view = await views.view_at(batch.last - 1)
        assert [message.id for message in view.transcript.messages()] == ["u1", "m1"]
    assert reads == []
