"""The examples for `adk_agui_middleware` with only the import changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest

from tests.bridges.adk.test_routes import words
from tests.compat.examples import load_example
from tests.server.demo_server import client_of, run_body

pytestmark = [pytest.mark.usefixtures("memory_store"), pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]")]

ME = {"X-User-Id": "ada"}


load = partial(load_example, "adk_agui_middleware")


async def post(client: httpx.AsyncClient, path: str, said: str = "hi", **more: Any) -> list[str]:
    return words(await client.post(path, json={**run_body(said), **more}, headers=ME))


async def test_quick_start() -> None:
    async with client_of(load("quick_start").app) as client:
        assert await post(client, "/agui") == ["RS", "TS m1", "TC Good ", "TC day.", "TE", "RF"]


async def test_context_history() -> None:
    async with client_of(load("context_history").app) as client:
        assert (await post(client, "/agui"))[-1] == "RF"
        listed = (await client.get("/thread/list", headers=ME)).json()
        messages = (await client.get("/message_snapshot/t", headers=ME)).json()["messages"]
        patch = [{"op": "remove", "path": "/threadTitle"}]
        assert (await client.patch("/state/t", json=patch, headers=ME)).json() == {"status": "updated"}
        state = (await client.get("/state_snapshot/t", headers=ME)).json()
        assert (await client.delete("/thread/t", headers=ME)).json() == {"status": "deleted"}
    assert listed == [{"threadId": "t", "threadTitle": "Trip"}]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert (state["type"], state["snapshot"]) == ("STATE_SNAPSHOT", {})


async def test_input_pipeline() -> None:
    module = load("input_pipeline")
    async with client_of(module.app) as client:
        assert (await post(client, "/api/v1/agui"))[-1] == "RF waits for c1"
        answer = [{"id": "u2", "role": "user", "content": "blue"}]
        assert await post(client, "/api/v1/agui", messages=answer) == [
            *("RS", 'CR c1 {"answer": "blue"}', "TS m1", "TC Blue it ", "TC is.", "TE", "RF"),
        ]
    assert module.model.saw[1][-1] == ("user", ("result", "ask_user", {"answer": "blue"}))
    assert module.recorded[:2] == ["demo-app/ada/t", "RUN_STARTED"]
    assert module.recorded[-1] == "RUN_FINISHED"


async def test_frontend_tools() -> None:
    module = load("frontend_tools")
    tools = [{"name": name, "description": name, "parameters": {}} for name in ("sayHello", "sayGoodbye")]
    async with client_of(module.app) as client:
        first = await post(client, "/agui", tools=tools)
        result = [{"id": "r1", "role": "tool", "toolCallId": "h1", "content": '{"done": true}'}]
        second = await post(client, "/agui", messages=result, tools=tools)
    assert first[-4:] == ["CS h1 sayHello", 'CA h1 {"to":"Sam"}', "CE h1", "RF waits for h1"]
    assert second[-5:] == ["TS m1 greeter", "TC Sam was ", "TC greeted.", "TE", "RF"]
    assert [name for name in module.greeter_model.requests[0].tools_dict if name.startswith("say")] == ["sayHello"]
