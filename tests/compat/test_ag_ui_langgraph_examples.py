"""The examples for `ag_ui_langgraph` with only the import changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest

from tests.compat.examples import load_example
from tests.server.demo_server import client_of, frames, run_body

pytestmark = pytest.mark.usefixtures("memory_store")
load = partial(load_example, "ag_ui_langgraph")


async def post(client: httpx.AsyncClient, path: str, **more: Any) -> list[dict[str, Any]]:
    body = {**run_body("hi"), **more}
    body.pop("protocolVersion")  # a page of that package declares no version
    return [event for _, event in frames(await client.post(path, json=body))]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_agentic_chat() -> None:
    async with client_of(load("agentic_chat").app) as client:
        events = await post(client, "/agent/agentic_chat")
    assert events[-1]["type"] == "RUN_FINISHED"
    assert text_of(events) == "Hello, how can I help?"


async def test_human_in_the_loop() -> None:
    path = "/agent/human_in_the_loop"
    async with client_of(load("human_in_the_loop").app) as client:
        asked = await post(client, path)
        answered = await post(client, path, forwardedProps={"command": {"resume": ["boil water"]}})
    custom = [event["name"] for event in asked if event["type"] == "CUSTOM"]
    assert "on_interrupt" in custom
    assert text_of(answered) == "Doing: boil water."
