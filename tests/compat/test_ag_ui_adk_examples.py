"""The examples for `ag_ui_adk` with only the import changed."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import httpx
import pytest
from ag_ui.core import Context, RunAgentInput, UserMessage

from tests.bridges.adk.test_routes import words
from tests.compat.examples import load_example
from tests.machine_speed import unless_hung
from tests.server.demo_server import client_of, run_body

pytestmark = [
    pytest.mark.usefixtures("memory_store"),
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]"),
    pytest.mark.filterwarnings("ignore:extract_headers is deprecated"),
]


load = partial(load_example, "ag_ui_adk")


async def post(client: httpx.AsyncClient, path: str, said: str = "hi", **more: Any) -> list[str]:
    headers = {"x-user-id": "ada", "x-tenant-id": "acme"}
    return words(await client.post(path, json={**run_body(said), **more}, headers=headers))


async def run_alone(module: ModuleType, *context: Context) -> list[str]:
    given = RunAgentInput(
        thread_id="thread_001",
        run_id="run_001",
        messages=[UserMessage(id="1", role="user", content="Hello!")],
        context=list(context),
        state={},
        tools=[],
        forwarded_props={},
    )
    with unless_hung():
        return [event.type.value async for event in module.agent.run(given)]


def client_tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}}


async def test_direct_usage() -> None:
    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert await run_alone(load("direct_usage")) == ["RUN_STARTED", *text, "RUN_FINISHED"]


async def test_fastapi_server() -> None:
    module = load("fastapi_server")
    async with client_of(module.app) as client:
        assert (await post(client, "/chat"))[-4:] == ["TS m1", "TC Welcome.", "TE", "RF"]
    assert module.seen == [{"user_id": "ada", "tenant_id": "acme"}]


async def test_resumable_app() -> None:
    module = load("resumable_app")
    tools = [client_tool("generate_task_steps")]
    async with client_of(module.app) as client:
        first = await post(client, "/chat", tools=tools)
        result = [{"id": "r1", "role": "tool", "toolCallId": "c1", "content": '{"accepted": true}'}]
        second = await post(client, "/chat", messages=result, tools=tools)
    assert first[-4:] == ["CS c1 generate_task_steps", 'CA c1 {"steps":["a","b"]}', "CE c1", "RF waits for c1"]
    assert second[-5:] == ["TS m1", "TC Both steps are ", "TC done.", "TE", "RF"]
    assert module.model.saw[1][-1] == ("user", ("result", "generate_task_steps", {"accepted": True}))


async def test_several_endpoints() -> None:
    async with client_of(load("several_endpoints").app) as client:
        for name in ("general", "technical", "creative"):
            answer = [f"TC The {name} ", "TC answer.", "TE", "RF"]
            assert (await post(client, f"/agents/{name}", threadId=name))[-4:] == answer


async def test_context_usage() -> None:
    module = load("context_usage")
    events = await run_alone(module, Context(description="user", value="Ada"))
    assert events[-1] == "RUN_FINISHED"
    assert module.seen == [["Ada"]]
    instruction = module.model.requests[0].config.system_instruction
    assert "- user: Ada" in instruction


async def test_client_tools() -> None:
    module = load("client_tools")
    tools = [client_tool("sayHello"), client_tool("sayGoodbye")]
    async with client_of(module.app) as client:
        first = await post(client, "/qa", tools=tools)
        result = [{"id": "r1", "role": "tool", "toolCallId": "c1", "content": "done"}]
        second = await post(client, "/qa", messages=result, tools=tools)
    assert first[-1] == "RF waits for c1"
    assert second[-4:] == ["TC Sam was ", "TC greeted.", "TE", "RF"]
    assert [name for name in module.hello_model.requests[0].tools_dict if name.startswith("say")] == ["sayHello"]


async def test_predictive_state() -> None:
    module = load("predictive_state")
    async with client_of(module.app) as client:
        first = await post(client, "/write")
        confirmation = next(word.split()[1] for word in first if word.endswith(" confirm_changes"))
        state = (await client.post("/agents/state", json={"threadId": "t"})).json()
        call_id = state["messages"][-1]["toolCalls"][0]["id"]
        answer = [{"id": "r1", "role": "tool", "toolCallId": call_id, "content": '{"accepted": true}'}]
        second = await post(client, "/write", messages=answer)
    assert any(word.startswith("X PredictState") for word in first)
    assert first[-1] == f"RF waits for {confirmation}"
    assert state["state"] == {"document": "Once upon a time"}
    assert second[-3:] == ["TC Kept.", "TE", "RF"]
    assert module.model.saw[2][-1] == ("user", "I accept the changes.")
