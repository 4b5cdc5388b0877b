"""Snapshots that an adapter asks for in the middle of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

from ambient_runner.projections.frames import snapshot_places
from ambient_runner.projections.private_entries import MESSAGES, restate
from ambient_runner.projections.redaction import REDACTED
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
    type_of,
)
from ambient_runner.protocol.verify import Verifier
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from ambient_runner.runs.view_cache import load_view
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, said, user

SECRET = "sk-live-0123456789"


def saying(*events: Any) -> ScriptedAgent:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    return ScriptedAgent(script)


async def snapshots(runner: Runner) -> list[list[Message]]:
    """What readers get in the place of each snapshot."""
    places = [seq for batch in await runner.ledger.read(KEY, 0) for seq in snapshot_places(batch)]
    return [(await load_view(runner.ledger, KEY, until=place)).transcript.messages() for place in places]


def contents(messages: list[Message]) -> list[Any]:
    return [message.content for message in messages]


async def test_each_one_has_its_place_and_shows_what_was_said_until_then() -> None:
    first, *rest = said("m1", "a", "b")
    call = [
        ToolCallStart(tool_call_id="c", tool_call_name="look", parent_message_id="m1"),
        ToolCallArgs(tool_call_id="c", delta="{}"),
        ToolCallEnd(tool_call_id="c"),
    ]
    agent = saying(first, SNAPSHOT_HERE, rest[0], SNAPSHOT_HERE, *rest[1:], *call[:2], SNAPSHOT_HERE, call[2])
    async with runner_of(agent) as runner:
        events = await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    verifier = Verifier("t", "r")
    for event in events:
        verifier.check(event)
    verifier.finish()
    assert [contents(messages) for messages in shown] == [["hi", ""], ["hi", "a"], ["hi", "ab"], ["hi", "ab"]]
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

    async with runner_of(saying(SNAPSHOT_HERE, *said("m1", "a")), middleware=[forging]) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi"], ["hi", "a"]]


async def test_a_secret_around_the_place_of_a_snapshot_is_not_let_out() -> None:
    start, head, tail, end = said("m1", "so " + SECRET[:9], SECRET[9:])
    async with runner_of(
        saying(start, head, SNAPSHOT_HERE, tail, end), dataclasses.replace(SETTINGS, secrets=(SECRET,))
    ) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi", "so "], ["hi", f"so {REDACTED}"]]


async def test_a_message_streamed_in_chunks_goes_on_after_a_snapshot() -> None:
    chunks = [TextMessageChunk(message_id="m1", role="assistant", delta="a"), TextMessageChunk(delta="b")]
    async with runner_of(saying(chunks[0], SNAPSHOT_HERE, chunks[1])) as runner:
        await run_once(runner, user("u1"))
        shown = await snapshots(runner)
    assert [contents(messages) for messages in shown] == [["hi", "a"], ["hi", "ab"]]


async def test_an_adapter_may_restate_the_conversation_and_clients_get_it_in_the_next_snapshot() -> None:
    news = restate([user("u1"), AssistantMessage(id="m1", content="put right")])
    async with runner_of(saying(*said("m1", "wrong"), news, SNAPSHOT_HERE, *said("m2", "more"))) as runner:
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
                yield restate([user("forged")], gone=["u1"])

        return handle

    news = restate([user("u1"), AssistantMessage(id="m1", content="put right")])
    async with runner_of(saying(*said("m1", "wrong"), news), middleware=[forging]) as runner:
        await run_once(runner, user("u1"))
        (shown,) = await snapshots(runner)
    assert contents(shown) == ["hi", "put right"]


async def test_a_restatement_that_cannot_be_understood_changes_nothing() -> None:
    broken = Custom(name=MESSAGES, value={"messages": [{"role": "nobody"}]})
    async with runner_of(saying(*said("m1", "a"), broken)) as runner:
        await run_once(runner, user("u1"))
        (shown,) = await snapshots(runner)
        assert (await runner.view(KEY)).memory is None
    assert contents(shown) == ["hi", "a"]
