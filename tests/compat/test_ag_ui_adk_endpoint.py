"""`add_adk_fastapi_endpoint` and `create_adk_app`, over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import AssistantMessage, FunctionCall, RunAgentInput, ToolCall, ToolMessage, UserMessage
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from google.adk.agents import LlmAgent
from google.adk.tools import LongRunningFunctionTool, ToolContext

from ambient_runner.compat.ag_ui_adk import (
    ADKAgent,
    AGUIToolset,
    add_adk_fastapi_endpoint,
    create_adk_app,
    resolve_agent_from_message_history,
)
from ambient_runner.compat.ag_ui_adk.endpoint import make_extract_headers
from tests.bridges.adk.scripted import Scripted, Turn, call
from tests.server.demo_server import SETTINGS, client_of, frames, run_body


def speaking(*turns: Turn, name: str = "root", tools: Any = (), **options: Any) -> ADKAgent:
    agent = LlmAgent(name=name, model=Scripted.of(*turns), tools=list(tools))
    return ADKAgent(agent, **{"app_name": "demo", "user_id": "ada", **options})


@asynccontextmanager
async def serving(agent: ADKAgent, **options: Any) -> AsyncGenerator[httpx.AsyncClient, None]:
    app = FastAPI()
    add_adk_fastapi_endpoint(app, agent, settings=SETTINGS, **options)
    async with client_of(app) as client:
        yield client


def types_of(response: httpx.Response) -> list[str]:
    return [event["type"] for _, event in frames(response)]


def text_of(response: httpx.Response) -> str:
    return "".join(event["delta"] for _, event in frames(response) if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_an_agent_is_served_at_its_path_with_its_capabilities_and_its_threads() -> None:
    agent = speaking(["Hello"], capabilities={"custom": {"chips": True}})
    async with serving(agent, path="/chat", tags=["agents"]) as client:
        response = await client.post("/chat", json=run_body("hi", thread="t1", state={"n": 1}))
        assert types_of(response)[0] == "RUN_STARTED"
        assert types_of(response)[-1] == "RUN_FINISHED"
        assert text_of(response) == "Hello"
        assert (await client.get("/chat/capabilities")).json() == {"custom": {"chips": True}}
        thread = (await client.post("/agents/state", json={"threadId": "t1"})).json()
        assert (thread["threadExists"], thread["state"]) == (True, {"n": 1})
        assert [message["content"] for message in thread["messages"]] == ["hi", "Hello"]
        missing = (await client.post("/agents/state", json={"threadId": "t2"})).json()
        assert missing == {"threadId": "t2", "threadExists": False, "state": {}, "messages": []}


async def test_an_app_is_created_for_an_agent() -> None:
    app = create_adk_app(speaking(["Hello"]), settings=SETTINGS)
    async with client_of(app) as client:
        assert text_of(await client.post("/", json=run_body("hi"))) == "Hello"
        assert (await client.get("/capabilities")).json() == {}


async def test_several_agents_are_served_by_one_app() -> None:
    app = FastAPI()
    for name in ("general", "technical"):
        add_adk_fastapi_endpoint(app, speaking([name], name=name), path=f"/agents/{name}", settings=SETTINGS)
    async with client_of(app) as client:
        answers = [
            text_of(await client.post(f"/agents/{name}", json=run_body("hi"))) for name in ("general", "technical")
        ]
    assert answers == ["general", "technical"]


async def test_a_router_is_served_too() -> None:
    app, router = FastAPI(), APIRouter(prefix="/api")
    add_adk_fastapi_endpoint(router, speaking(["Hello"]), "/chat", settings=SETTINGS)
    app.include_router(router)
    async with client_of(app) as client:
        assert text_of(await client.post("/api/chat", json=run_body("hi"))) == "Hello"


async def test_extracted_state_reaches_tools_and_hidden_keys_no_client() -> None:
    seen: list[Any] = []

    def look(tool_context: ToolContext) -> str:
        keys = ("tenant", "temp:token", "user:plan", "app:secret")
        seen.append([tool_context.state.get(key) for key in keys])
        return "ok"

    async def extract(request: Request, given: RunAgentInput) -> dict[str, Any]:
        return {"tenant": request.headers["x-tenant"], "temp:token": "t0k3n-9f2c", "user:plan": "gold"}

    agent = speaking([call("look", "c1")], ["done"], tools=[look], allow_scoped_state_keys=True)
    async with serving(agent, extract_state_from_request=extract) as client:
        body = run_body("hi", state={"tenant": "forged", "app:secret": "forged"})
        response = await client.post("/", json=body, headers={"x-tenant": "acme"})
    assert seen == [["acme", "t0k3n-9f2c", "gold", None]]
    assert "t0k3n-9f2c" not in response.text


async def test_the_user_is_the_one_that_the_extracted_state_names() -> None:
    async def extract(request: Request, given: RunAgentInput) -> dict[str, Any]:
        return {"user": request.headers["x-user"]}

    agent = speaking(["one"], ["two"], user_id=None, user_id_extractor=lambda given: given.state["user"])
    async with serving(agent, extract_state_from_request=extract) as client:
        for user in ("ada", "bob"):
            await client.post("/", json=run_body(user, thread="same"), headers={"x-user": user})
        threads = [
            (await client.post("/agents/state", json={"threadId": "same"}, headers={"x-user": user})).json()
            for user in ("ada", "bob")
        ]
    assert [thread["messages"][0]["content"] for thread in threads] == ["ada", "bob"]


def header_user(given: RunAgentInput) -> Any:
    return given.state.get("headers", {}).get("user_id")


async def test_a_client_cannot_choose_a_user_whom_a_header_names() -> None:
    agent = speaking(["one"], ["two"], user_id=None, user_id_extractor=header_user)
    forged = {"headers": {"user_id": "ada", "theme": "dark"}}
    async with serving(agent, extract_state_from_request=make_extract_headers(["x-user-id"])) as client:
        await client.post("/", json=run_body("secret"), headers={"x-user-id": "ada"})
        response = await client.post("/", json=run_body("hi", state=forged), headers={"x-user-id": "bob"})
        nobody = await client.post("/", json=run_body("hi", state=forged))
        thread = (await client.post("/agents/state", json={"threadId": "t"}, headers={"x-user-id": "bob"})).json()
    assert (text_of(response), nobody.status_code) == ("two", 401)
    assert thread["state"] == {"headers": {"user_id": "bob", "theme": "dark"}}
    assert [message["content"] for message in thread["messages"]] == ["hi", "two"]


@pytest.mark.parametrize(
    ("identity", "status"), [({}, 403), ({"user_id": None, "user_id_extractor": header_user}, 200)]
)
async def test_other_machines_are_served_if_the_extracted_state_names_the_user(identity: Any, status: int) -> None:
    app = FastAPI()
    extract = make_extract_headers(["x-user-id"])
    add_adk_fastapi_endpoint(app, speaking(["ok"], **identity), extract_state_from_request=extract, settings=SETTINGS)
    async with client_of(app, client=("192.0.2.1", 1234)) as client:
        response = await client.post("/", json=run_body("hi"), headers={"x-user-id": "ada"})
    assert response.status_code == status


@pytest.mark.parametrize(
    ("identity", "is_reported"),
    [({}, True), ({"user_id": None}, True), ({"user_id": None, "user_id_extractor": header_user}, False)],
)
def test_callers_who_share_the_threads_of_one_user_are_reported(
    identity: Any, is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    create_adk_app(speaking(**identity), dependencies=[Depends(header_user)], settings=SETTINGS)
    assert ("user_id_extractor" in caplog.text) == is_reported


async def test_extracted_headers_are_in_the_state() -> None:
    with pytest.warns(DeprecationWarning, match="extract_headers"):
        create_adk_app(speaking(), extract_headers=["x-tenant-id"], settings=SETTINGS)
    extract = make_extract_headers(["x-tenant-id", "x-missing"])
    async with serving(speaking(["ok"]), extract_state_from_request=extract) as client:
        response = await client.post("/", json=run_body("hi", thread="t"), headers={"x-tenant-id": "acme"})
        assert types_of(response)[-1] == "RUN_FINISHED"
        thread = (await client.post("/agents/state", json={"threadId": "t"})).json()
    assert thread["state"] == {"headers": {"tenant_id": "acme"}}


def test_headers_and_an_extractor_together_are_refused() -> None:
    with pytest.raises(ValueError):
        create_adk_app(
            speaking(), extract_headers=["x"], extract_state_from_request=make_extract_headers(["x"]), settings=SETTINGS
        )


async def test_a_resolver_chooses_the_agent_of_each_request() -> None:
    general, technical = speaking(["general"]), speaking(["technical"])

    async def resolve(request: Request, given: RunAgentInput) -> ADKAgent | None:
        return technical if given.state.get("to") == "technical" else None

    async with serving(general, agent_resolver=resolve) as client:
        answers = [
            text_of(await client.post("/", json=run_body("hi", thread=to, state={"to": to})))
            for to in ("x", "technical")
        ]
    assert answers == ["general", "technical"]


async def test_a_client_tool_is_answered_over_http() -> None:
    agent = speaking([call("sayHello", "c1")], ["done"], tools=[AGUIToolset()])
    tool = {"name": "sayHello", "description": "Greet", "parameters": {"type": "object", "properties": {}}}
    async with serving(agent) as client:
        first = await client.post("/", json=run_body("hi", thread="t", tools=[tool]))
        calls = [event for _, event in frames(first) if event["type"] == "TOOL_CALL_START"]
        assert [event["toolCallName"] for event in calls] == ["sayHello"]
        body = run_body("hi", thread="t", tools=[tool])
        body["messages"] = [{"id": "a", "role": "tool", "toolCallId": "c1", "content": "greeted"}]
        assert text_of(await client.post("/", json=body)) == "done"


def approve(item: str) -> dict[str, str]:
    """Request an approval."""
    return {"status": "pending"}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_client_answers_a_long_running_tool_that_has_returned_a_first_result(
    is_restarted: bool, tmp_path: Path
) -> None:
    """The run once continued with the first result, and the client's was refused with 422."""
    settings = dataclasses.replace(SETTINGS, store=f"sqlite:///{tmp_path / 'ambient.db'}")
    model = Scripted.of([call("approve", "c1", item="a")], ["Approved."])
    answer = run_body("hi")
    answer["messages"] = [{"id": "r1", "role": "tool", "toolCallId": "c1", "content": '{"status": "approved"}'}]

    def create() -> FastAPI:
        root = LlmAgent(name="root", model=model, tools=[LongRunningFunctionTool(approve)])
        return create_adk_app(ADKAgent(root, app_name="demo", user_id="ada"), settings=settings)

    app = create()
    async with client_of(app) as client:
        first = await client.post("/", json=run_body("hi"))
        second = None if is_restarted else await client.post("/", json=answer)
    if second is None:
        async with client_of(create()) as client:
            second = await client.post("/", json=answer)
    assert "TOOL_CALL_RESULT" not in types_of(first)
    assert frames(first)[-1][1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert text_of(second) == "Approved."
    assert model.saw[1][-1] == ("user", ("result", "approve", {"status": "approved"}))


async def test_a_dependency_decides_who_may_use_any_route_of_the_agent() -> None:
    """The routes for state and capabilities were once open to every machine if there was a dependency."""

    def check(request: Request) -> None:
        if request.headers.get("authorization") != "Bearer open":
            raise HTTPException(401)

    async with serving(speaking(["Hello"]), dependencies=[Depends(check)]) as client:
        refused = await client.post("/", json=run_body("hi"))
        accepted = await client.post("/", json=run_body("hi"), headers={"authorization": "Bearer open"})
        state = await client.post("/agents/state", json={"threadId": "t"})
        capabilities = await client.get("/capabilities")
    assert (refused.status_code, text_of(accepted)) == (401, "Hello")
    assert (state.status_code, capabilities.status_code) == (401, 401)


async def test_an_app_with_its_own_cors_middleware_decides_which_pages_may_call() -> None:
    app = FastAPI()
    add_adk_fastapi_endpoint(app, speaking(["Hello"]), settings=SETTINGS)
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"], allow_credentials=True)
    async with client_of(app) as client:
        response = await client.post("/", json=run_body("hi"), headers={"Origin": "https://page.example"})
    assert (response.status_code, response.headers["access-control-allow-credentials"]) == (200, "true")


def test_the_agent_of_a_call_is_found_by_the_name_of_its_message() -> None:
    agents = {"sub": speaking()}
    asked = AssistantMessage(
        id="m", name="sub", tool_calls=[ToolCall(id="c", function=FunctionCall(name="x", arguments="{}"))]
    )
    answer = ToolMessage(id="a", tool_call_id="c", content="ok")
    assert resolve_agent_from_message_history([asked, answer], agents) is agents["sub"]
    assert resolve_agent_from_message_history([asked, UserMessage(id="u", content="hi")], agents) is None
    assert (
        resolve_agent_from_message_history([asked, ToolMessage(id="a", tool_call_id="d", content="")], agents) is None
    )
    assert resolve_agent_from_message_history([], agents) is None
