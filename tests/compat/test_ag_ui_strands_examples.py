"""The examples for `ag_ui_strands` with only the import changed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from tests.compat.examples import load_example
from tests.machine_speed import unless_hung
from tests.server.demo_server import client_of, frames

PAGE_TOOL = {
    "name": "change_background",
    "description": "Change the background of the page",
    "parameters": {"type": "object", "properties": {"background": {"type": "string"}}},
}


pytestmark = pytest.mark.usefixtures("memory_store")
load = partial(load_example, "ag_ui_strands")


class Page:
    """A page that keeps the messages of its last snapshot, as AG-UI clients do."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._runs = 0
        self.messages: list[Any] = []

    async def send(self, *messages: Any, **options: Any) -> list[dict[str, Any]]:
        self._runs += 1
        self.messages += messages
        body = {"threadId": "t", "runId": f"r{self._runs}", "messages": self.messages, "tools": [], "context": []}
        with unless_hung():
            response = await self._client.post("/", json={**body, "state": {}, "forwardedProps": {}, **options})
        assert response.status_code == 200, response.text
        events = [event for _, event in frames(response)]
        self.messages = next(e["messages"] for e in reversed(events) if e["type"] == "MESSAGES_SNAPSHOT")
        return [e for e in events if e["type"] != "MESSAGES_SNAPSHOT" and not _is_ours(e)]


def _is_ours(event: dict[str, Any]) -> bool:
    return event["type"] == "CUSTOM" and event["name"].startswith("ambient:")


@asynccontextmanager
async def page_of(module: ModuleType) -> AsyncGenerator[Page, None]:
    async with client_of(module.app) as client:
        yield Page(client)


def user(text: str) -> dict[str, str]:
    return {"id": f"u-{text}", "role": "user", "content": text}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def deltas(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_agentic_chat() -> None:
    module = load("agentic_chat")
    async with page_of(module) as page:
        first = await page.send(user("Make it teal"), tools=[PAGE_TOOL])
        assert kinds(first) == [
            *("RUN_STARTED", "STATE_SNAPSHOT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED")
        ]
        assert len(module.model.saw) == 1
        result = {"id": "x", "role": "tool", "toolCallId": "c1", "content": "done"}
        assert deltas(await page.send(result, tools=[PAGE_TOOL])) == "It is teal now."


async def test_backend_tool_rendering() -> None:
    async with page_of(load("backend_tool_rendering")) as page:
        events = await page.send(user("weather"))
    [result] = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert "sunny" in result["content"]
    assert [message["role"] for message in page.messages] == ["user", "assistant", "tool", "assistant"]


async def test_shared_state() -> None:
    module = load("shared_state")
    async with page_of(module) as page:
        events = await page.send(user("soup"), state={"recipe": {"title": ""}})
    assert [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"] == [
        {"recipe": {"title": ""}},
        {"recipe": {"title": "Soup"}},
        {"recipe": {"title": "Soup"}, "is_saved": True},
    ]
    assert module.model.saw[0][0]["content"] == [{"text": 'Current recipe: {"title": ""}\nsoup'}]


async def test_agentic_generative_ui() -> None:
    module = load("agentic_generative_ui")
    async with page_of(module) as page:
        events = await page.send(user("a cake"))
    assert kinds(events) == [
        *("RUN_STARTED", "STATE_SNAPSHOT", "CUSTOM", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS"),
        *("STATE_SNAPSHOT", "TOOL_CALL_END", "TOOL_CALL_RESULT", "STATE_DELTA", "STATE_DELTA", "RUN_FINISHED"),
    ]
    assert len(module.model.saw) == 1


async def test_human_in_the_loop() -> None:
    module = load("human_in_the_loop")
    async with page_of(module) as page:
        events = await page.send(user("Rome"))
        for expected in ("confirm_booking", "tool_call"):
            [interrupt] = events[-1]["outcome"]["interrupts"]
            assert interrupt["reason"] == expected
            answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
            events = await page.send(resume=[answer])
    assert deltas(events) == "Have a good trip."
    results = [
        block["toolResult"]["content"] for m in module.model.saw[-1] for block in m["content"] if "toolResult" in block
    ]
    assert results == [[{"text": "booked Rome"}], [{"text": "paid 9"}]]
