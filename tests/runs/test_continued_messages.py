"""A message that goes on after its END, or after the agent's own snapshot: clients append to it, so a secret must not be divided there."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ambient_runner.projections.redaction import REDACTED
from ambient_runner.protocol import events as e
from ambient_runner.runs.view_cache import load_view
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, run_once, runner_of, said, user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ambient_runner.runs.run import Run

SECRET = "zq7Rk2pVx9LmT4wB8nYc3HdF"
HALF, REST = SECRET[:12], SECRET[12:]
SETTINGS_WITH_SECRET = dataclasses.replace(SETTINGS, secrets=(SECRET,))


def snapshot(*messages: e.Message) -> e.MessagesSnapshot:
    return e.MessagesSnapshot(messages=[user("u1"), *messages])


def thought(*deltas: str) -> list[e.Event]:
    contents = [e.ReasoningMessageContent(message_id="m", delta=delta) for delta in deltas]
    return [e.ReasoningMessageStart(message_id="m"), *contents, e.ReasoningMessageEnd(message_id="m")]


def call(*deltas: str) -> list[e.Event]:
    args = [e.ToolCallArgs(tool_call_id="c", delta=delta) for delta in deltas]
    return [
        e.ToolCallStart(tool_call_id="c", tool_call_name="look", parent_message_id="m"),
        *args,
        e.ToolCallEnd(tool_call_id="c"),
    ]


TEXT = snapshot(e.AssistantMessage(id="m", content=HALF))
REASONING = snapshot(e.ReasoningMessage(id="m", content=HALF))
CALL = snapshot(
    e.AssistantMessage(id="m", tool_calls=[e.ToolCall(id="c", function=e.FunctionCall(name="look", arguments=HALF))])
)
STREAMS: dict[str, list[e.Event]] = {
    "reasoning twice": [*thought(HALF), *thought(REST)],
    "reasoning without a second start": [*thought(HALF), *thought(REST)[1:]],
    "reasoning in chunks": [
        e.ReasoningMessageChunk(message_id="m", delta=HALF),
        e.TextMessageChunk(message_id="t", delta="hi "),
        e.ReasoningMessageChunk(message_id="m", delta=REST),
    ],
    "reasoning that a subagent's end closed": [
        e.SubagentStarted(subagent_run_id="s", name="helper"),
        *(msgspec.structs.replace(event, subagent_run_id="s") for event in thought(HALF)[:2]),
        e.SubagentFinished(subagent_run_id="s"),
        *thought(REST),
    ],
    "text that a snapshot began": [TEXT, *said("m", REST)],
    "open text that a snapshot changed": [said("m")[0], TEXT, *said("m", REST)[1:]],
    "open text with words that a snapshot changed": [*said("m", "x ")[:2], TEXT, *said("m", REST)[1:]],
    "reasoning that a snapshot began": [REASONING, *thought(REST)],
    "open reasoning that a snapshot changed": [thought()[0], REASONING, *thought(REST)[1:]],
    "arguments that a snapshot began": [CALL, *call(REST)],
    "open arguments that a snapshot changed": [call()[0], CALL, *call(REST)[1:]],
    "text that two snapshots changed": [
        TEXT,
        snapshot(e.AssistantMessage(id="m", content=SECRET[:16])),
        *said("m", SECRET[16:]),
    ],
}


def fold(events: list[e.Event]) -> dict[str, str]:
    """The texts of a client that appends every delta to what it has."""
    found: dict[str, str] = {}
    for event in events:
        match event:
            case e.TextMessageContent() | e.ReasoningMessageContent():
                found[event.message_id] = found.get(event.message_id, "") + event.delta
            case e.ToolCallArgs():
                found[event.tool_call_id] = found.get(event.tool_call_id, "") + event.delta
            case _:
                pass
    return found


@pytest.mark.parametrize("pauses", [False, True], ids=["at once", "with pauses"])
@pytest.mark.parametrize("name", STREAMS)
async def test_a_secret_divided_where_a_message_goes_on_is_redacted(name: str, pauses: bool) -> None:
    async def script(run: Run) -> AsyncIterator[Any]:
        for event in STREAMS[name]:
            yield event
            if pauses:
                await asyncio.sleep(0)
                await asyncio.sleep(0)

    async with runner_of(ScriptedAgent(script), SETTINGS_WITH_SECRET) as runner:
        with unless_hung():
            events = await run_once(runner, user("u1"))
            view = await load_view(runner.ledger, KEY)
    assert isinstance(events[-1], e.RunFinished)
    stored = msgspec.json.encode(view.transcript.messages()).decode()
    assert SECRET not in stored
    assert REDACTED in stored, "the rest of the secret is not replaced"
    assert all(SECRET not in text for text in fold(events).values())


async def test_text_that_a_snapshot_began_goes_on_as_it_is() -> None:
    """Without a secret, nothing of it changes."""

    async def script(run: Run) -> AsyncIterator[Any]:
        for event in (TEXT, *said("m", "-and ", "more")):
            yield event

    async with runner_of(ScriptedAgent(script), SETTINGS_WITH_SECRET) as runner:
        with unless_hung():
            await run_once(runner, user("u1"))
            view = await load_view(runner.ledger, KEY)
    assert [m.content for m in view.transcript.messages() if isinstance(m, e.AssistantMessage)] == [f"{HALF}-and more"]
