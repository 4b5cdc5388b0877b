"""Agents with a `run` of their own: a subclass that overrides it, or a wrapper around the agent. It was once ignored or refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import ag_ui.core as ag
import httpx
import pytest
from ag_ui.core import CustomEvent, EventType, RunAgentInput
from fastapi import FastAPI, Header, Request
from google.adk.agents import LlmAgent
from strands import ToolContext, tool

from ambient_runner.compat.ag_ui_adk import ADKAgent, AGUIToolset, add_adk_fastapi_endpoint
from ambient_runner.compat.ag_ui_strands import StrandsAgent, add_strands_fastapi_endpoint, create_strands_app
from ambient_runner.errors import ConfigError
from tests.bridges.adk.scripted import Scripted
from tests.bridges.adk.scripted import call as adk_call
from tests.bridges.strands.scripted import ScriptedModel, call, calls, said_assistant, said_user, says
from tests.bridges.strands.world import agent_of
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

PAINT = {"name": "paint", "description": "Paint", "parameters": {"type": "object", "properties": {}}}


async def add_event(events: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Yield the events, and one of its own after RUN_STARTED. It reads them as models, as published apps do."""
    async for event in events:
        yield event
        if event.type == EventType.RUN_STARTED:
            yield CustomEvent(name="mine", value=1)


class OwnStrands(StrandsAgent):
    def run(self, input_data: Any, invocation_state: Any = None) -> Any:
        return add_event(super().run(input_data, invocation_state))


class OwnADK(ADKAgent):
    async def run(self, input: Any) -> Any:  # type: ignore[override]
        async for event in add_event(super().run(input)):
            yield event


class Wrapper:
    """Has the attributes of the agent inside, and a `run` of its own."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def run(self, input_data: Any) -> Any:
        async for event in add_event(self._agent.run(input_data)):
            yield event


class BareWrapper:
    """Has nothing of the agent inside."""

    name = "helper"

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def run(self, input_data: Any) -> Any:
        async for event in add_event(self._agent.run(input_data)):
            yield event


def add_endpoint(agent: Any, **options: Any) -> FastAPI:
    app = FastAPI()
    add_strands_fastapi_endpoint(app, agent, "/", settings=SETTINGS, **options)
    return app


def create_app(agent: Any) -> FastAPI:
    return create_strands_app(agent, settings=SETTINGS)


def own_strands(kind: Callable[[Any], Any], model: ScriptedModel, *tools: Any) -> Any:
    inner = agent_of(model, *tools)
    return OwnStrands(inner, "helper") if kind is OwnStrands else kind(StrandsAgent(inner, "helper"))


def own_adk(kind: Callable[[Any], Any], model: Scripted, **options: Any) -> Any:
    inner = LlmAgent(name="root", model=model, tools=[AGUIToolset()])
    options = {"app_name": "demo", "user_id": "ada", **options}
    return OwnADK(inner, **options) if kind is OwnADK else kind(ADKAgent(inner, **options))


def has_own_event(response: httpx.Response) -> bool:
    return any(event.get("name") == "mine" for _, event in frames(response))


def text_of(response: httpx.Response) -> str:
    return "".join(event["delta"] for _, event in frames(response) if event["type"] == "TEXT_MESSAGE_CONTENT")


def last_snapshot(response: httpx.Response) -> list[str]:
    snapshots = [event["messages"] for _, event in frames(response) if event["type"] == "MESSAGES_SNAPSHOT"]
    return [message["content"] for message in snapshots[-1]]


@pytest.mark.parametrize("serve", [add_endpoint, create_app])
@pytest.mark.parametrize("kind", [OwnStrands, Wrapper, BareWrapper])
async def test_a_strands_agent_is_served_by_its_own_run(kind: Any, serve: Callable[[Any], FastAPI]) -> None:
    model = ScriptedModel(says("one"), says("two"))
    async with client_of(serve(own_strands(kind, model))) as client:
        with unless_hung():
            first = await client.post("/", json=run_body("hi"))
            second = await client.post("/", json=run_body("again", message="u2"))
    assert [has_own_event(first), has_own_event(second)] == [True, True]
    assert model.saw[1] == [said_user("hi"), said_assistant("one"), said_user("again")]
    assert last_snapshot(second) == ["hi", "one", "again", "two"]


@pytest.mark.parametrize("kind", [OwnStrands, Wrapper])
async def test_a_client_tool_of_a_strands_agent_with_its_own_run_is_answered(kind: Any) -> None:
    model = ScriptedModel(calls(call("c1", "paint")), says("painted"))
    async with client_of(add_endpoint(own_strands(kind, model))) as client:
        with unless_hung():
            first = await client.post("/", json=run_body("hi", tools=[PAINT]))
            body = run_body("hi", tools=[PAINT])
            body["messages"] = [{"id": "r1", "role": "tool", "toolCallId": "c1", "content": "blue"}]
            second = await client.post("/", json=body)
    assert frames(first)[-1][1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert text_of(second) == "painted"


async def test_the_own_run_of_a_strands_agent_can_change_the_invocation_state() -> None:
    seen: list[Any] = []

    @tool(context=True)
    def who(tool_context: ToolContext) -> str:
        """Return the user of a request."""
        seen.append([tool_context.invocation_state.get(name) for name in ("user", "role")])
        return "you"

    class AddsRole(StrandsAgent):
        def run(self, input_data: Any, invocation_state: Any = None) -> Any:
            return super().run(input_data, {**(invocation_state or {}), "role": "admin"})

    agent = AddsRole(agent_of(ScriptedModel(calls(call("c1", "who")), says("you")), who), "helper")
    app = add_endpoint(agent, invocation_state_provider=lambda request, given: {"user": "ada"})
    async with client_of(app) as client:
        with unless_hung():
            await client.post("/", json=run_body("hi"))
    assert seen == [["ada", "admin"]]


@pytest.mark.parametrize("kind", [OwnStrands, Wrapper, BareWrapper])
async def test_users_with_the_same_thread_id_do_not_share_a_strands_agent_with_its_own_run(kind: Any) -> None:
    def auth(x_user: str = Header()) -> str:
        return x_user

    model = ScriptedModel(says("one"), says("two"))
    async with client_of(add_endpoint(own_strands(kind, model), auth=auth)) as client:
        with unless_hung():
            for user in ("ada", "bob"):
                await client.post("/", json=run_body(f"I am {user}"), headers={"x-user": user})
    assert model.saw == [[said_user("I am ada")], [said_user("I am bob")]]


@pytest.mark.parametrize("has_resolver", [False, True])
@pytest.mark.parametrize("kind", [OwnADK, Wrapper])
async def test_an_adk_agent_is_served_by_its_own_run(kind: Any, has_resolver: bool) -> None:
    model, app = Scripted.of(["one"], ["two"]), FastAPI()
    agent = own_adk(kind, model)

    async def resolve(request: Request, given: RunAgentInput) -> Any:
        return agent

    add_adk_fastapi_endpoint(app, agent, settings=SETTINGS, agent_resolver=resolve if has_resolver else None)
    async with client_of(app) as client:
        with unless_hung():
            first = await client.post("/", json=run_body("hi"))
            second = await client.post("/", json=run_body("again", message="u2"))
            thread = (await client.post("/agents/state", json={"threadId": "t"})).json()
        assert (await client.get("/capabilities")).json() == {}
    assert [has_own_event(first), has_own_event(second)] == [True, True]
    assert model.saw[1] == [("user", "hi"), ("model", "one"), ("user", "again")]
    assert [message["content"] for message in thread["messages"]] == ["hi", "one", "again", "two"]


@pytest.mark.parametrize("kind", [OwnADK, Wrapper])
async def test_a_client_tool_of_an_adk_agent_with_its_own_run_is_answered(kind: Any) -> None:
    app = FastAPI()
    add_adk_fastapi_endpoint(app, own_adk(kind, Scripted.of([adk_call("paint", "c1")], ["painted"])), settings=SETTINGS)
    async with client_of(app) as client:
        with unless_hung():
            first = await client.post("/", json=run_body("hi", tools=[PAINT]))
            body = run_body("hi", tools=[PAINT])
            body["messages"] = [{"id": "r1", "role": "tool", "toolCallId": "c1", "content": "blue"}]
            second = await client.post("/", json=body)
    assert frames(first)[-1][1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert text_of(second) == "painted"


async def test_users_with_the_same_thread_id_do_not_share_an_adk_agent_with_its_own_run() -> None:
    async def extract(request: Request, given: RunAgentInput) -> dict[str, Any]:
        return {"temp:user": request.headers["x-user"]}

    def user_of(given: RunAgentInput) -> str:
        return given.state["temp:user"]  # a key that only the request has, not the run's input

    model, app = Scripted.of(["one"], ["two"]), FastAPI()
    agent = own_adk(OwnADK, model, user_id=None, user_id_extractor=user_of)
    add_adk_fastapi_endpoint(app, agent, settings=SETTINGS, extract_state_from_request=extract)
    async with client_of(app) as client:
        with unless_hung():
            for user in ("ada", "bob"):
                await client.post("/", json=run_body(f"I am {user}"), headers={"x-user": user})
    assert model.saw == [[("user", "I am ada")], [("user", "I am bob")]]


def test_what_is_no_adk_agent_is_refused_when_it_is_added() -> None:
    with pytest.raises(ConfigError):
        add_adk_fastapi_endpoint(FastAPI(), BareWrapper(None), settings=SETTINGS)  # type: ignore[arg-type]


async def test_without_a_server_an_own_run_works_too() -> None:
    given = ag.RunAgentInput(
        thread_id="t",
        run_id="r",
        state={},
        messages=[ag.UserMessage(id="u1", content="hi")],
        tools=[],
        context=[],
        forwarded_props={},
    )
    with unless_hung():
        for agent in (own_strands(OwnStrands, ScriptedModel(says("hi"))), own_adk(OwnADK, Scripted.of(["hi"]))):
            events = [event async for event in agent.run(given)]
            assert [event.type for event in events[:2]] == [EventType.RUN_STARTED, EventType.CUSTOM]
            assert events[-1].type == EventType.RUN_FINISHED
