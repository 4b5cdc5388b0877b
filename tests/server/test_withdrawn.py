"""Withdrawn content is not sent to clients that read the run afterwards, through any route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import ag_ui.core
import httpx
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware

from ambient_runner import create_app
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.langgraph import LangGraphBridge
from tests.bridges.langgraph.scripted import ScriptedModel, says
from tests.server.demo_server import SETTINGS, client_of

SECRETS = ("first-draft", "secret argument", "secret result")


class Guarded:
    """Streams a draft with a call, and takes it back in its own snapshot."""

    async def run(self, input: ag_ui.core.RunAgentInput) -> AsyncIterator[Any]:
        e = ag_ui.core
        yield e.TextMessageStartEvent(message_id="m1")
        yield e.TextMessageContentEvent(message_id="m1", delta="first-draft")
        yield e.TextMessageEndEvent(message_id="m1")
        yield e.ToolCallStartEvent(tool_call_id="c1", tool_call_name="look", parent_message_id="m1")
        yield e.ToolCallArgsEvent(tool_call_id="c1", delta='{"q": "secret argument"}')
        yield e.ToolCallEndEvent(tool_call_id="c1")
        yield e.ToolCallResultEvent(message_id="t1", tool_call_id="c1", content="secret result")
        yield e.TextMessageStartEvent(message_id="m2")
        yield e.TextMessageContentEvent(message_id="m2", delta="kept")
        yield e.TextMessageEndEvent(message_id="m2")
        kept = e.AssistantMessage(id="m2", content="kept")
        checked = e.AssistantMessage(id="m1", content="checked", tool_calls=[])
        yield e.MessagesSnapshotEvent(messages=[*input.messages, checked, kept])


def served() -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return client_of(create_app(SETTINGS, {"guarded": AGUIBridge(Guarded())}))


def body(**more: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hi"}], **more}


def parse_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def contents(events: list[dict[str, Any]]) -> list[Any]:
    snapshot = next(event for event in reversed(events) if event["type"] == "MESSAGES_SNAPSHOT")
    return [message.get("content") for message in snapshot["messages"]]


@pytest.mark.parametrize("protocol", ["1.0", "0.0.57"])
async def test_a_replay_of_the_thread_has_the_corrected_messages_only(protocol: str) -> None:
    async with served() as client:
        live = (await client.post("/", json=body())).text
        assert "first-draft" in live  # Seen while it was streamed.
        replay = (await client.get(f"/threads/t/events?until=idle&protocol={protocol}")).text
    events = parse_events(replay)
    assert [secret for secret in SECRETS if secret in replay] == []
    assert "kept" in replay
    assert contents(events) == ["hi", "checked", "kept"]
    starts = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
    assert starts == [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_END"] == ["m1", "m2"]


async def test_a_repeated_request_gets_its_run_without_the_withdrawn_content() -> None:
    headers = {"Idempotency-Key": "once"}
    async with served() as client:
        await client.post("/", json=body(), headers=headers)
        replay = (await client.post("/", json=body(), headers=headers)).text
    assert [secret for secret in SECRETS if secret in replay] == []
    assert contents(parse_events(replay)) == ["hi", "checked", "kept"]


async def test_a_reader_that_resumes_in_the_middle_gets_the_rest_in_order() -> None:
    async with served() as client:
        live = (await client.post("/", json=body())).text
        cursors = [line[4:] for line in live.splitlines() if line.startswith("id: ")]
        replay = (await client.get("/threads/t/events?until=idle", headers={"Last-Event-ID": cursors[2]})).text
        later = [line[4:] for line in replay.splitlines() if line.startswith("id: ")]
    assert [secret for secret in SECRETS if secret in replay] == []
    assert [cursor for cursor in cursors[3:] if cursor in later] == later
    assert contents(parse_events(replay)) == ["hi", "checked", "kept"]


async def test_a_masked_message_of_the_user_is_masked_in_the_input_of_replayed_runs() -> None:
    graph = create_agent(ScriptedModel(says("Noted.")), middleware=[PIIMiddleware("email", strategy="redact")])
    async with client_of(create_app(SETTINGS, {"graph": LangGraphBridge(graph)})) as client:
        messages = [{"id": "u", "role": "user", "content": "I am ann@example.com"}]
        live = (await client.post("/", json=body(messages=messages))).text
        replay = (await client.get("/threads/t/events?until=idle")).text
        cursors = [line[4:] for line in live.splitlines() if line.startswith("id: ")]
        resumed = (await client.get(f"/threads/t/events?until=idle&after={cursors[3]}")).text
    assert "ann@example.com" not in replay + resumed
    assert contents(parse_events(replay)) == contents(parse_events(resumed)) == ["I am [REDACTED_EMAIL]", "Noted."]
    assert "RUN_STARTED" in resumed
