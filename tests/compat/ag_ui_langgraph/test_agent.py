"""Apps written for `ag_ui_langgraph` run with only the import line changed."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any

import ag_ui_langgraph as published
import httpx
import pytest
from ag_ui.core import BaseEvent, RunAgentInput, RunErrorEvent, UserMessage
from ag_ui.encoder import EventEncoder
from copilotkit import LangGraphAGUIAgent
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.middleware.cors import CORSMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner.compat import ag_ui_langgraph as ours
from ambient_runner.compat.ag_ui_langgraph import (
    LangGraphAgent,
    StateItem,
    StateStreamingMiddleware,
    add_langgraph_fastapi_endpoint,
)
from ambient_runner.errors import ConfigError
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, get_weather
from tests.server.demo_server import client_of, frames, run_body

ROME = '{"city": "Rome"}'


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMBIENT_STORE", "memory://")


def saying(answer: Any = "Hi.") -> Any:
    async def node(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [AIMessage(answer(config) if callable(answer) else answer)]}

    return StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(checkpointer=InMemorySaver())


def run_input(text: str | None = "hi", **more: Any) -> RunAgentInput:
    messages = [UserMessage(id="u1", role="user", content=text)] if text else []
    return RunAgentInput(
        **{"thread_id": "t", "run_id": "r", "messages": messages, "tools": [], "context": [], "state": {}, **more}
    )


async def events_of(agent: Any, given: RunAgentInput) -> list[BaseEvent]:
    return [event async for event in agent.run(given)]


def words(events: list[Any]) -> list[str]:
    """The conversation in a stream: texts, calls and results, without ids of messages."""
    found: list[str] = []
    for event in events:
        match event.type.value:
            case "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" if event.delta:
                found.append(event.delta)
            case "TOOL_CALL_START":
                found.append(f"{event.tool_call_id} {event.tool_call_name}")
            case "TOOL_CALL_RESULT":
                found.append(f"{event.tool_call_id}: {event.content}")
            case _:
                pass
    return found


async def texts(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return "".join(event["delta"] for _, event in frames(response) if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_an_endpoint_serves_the_graph_at_its_path_and_answers_health() -> None:
    app = FastAPI()
    for name in ("one", "two"):
        agent = LangGraphAgent(name=name, graph=saying(f"I am {name}."), description="A test.")
        add_langgraph_fastapi_endpoint(app, agent, f"/agents/{name}", tags=["agents"], operation_id=name)
    async with client_of(app) as client:
        for name in ("one", "two"):
            assert (
                await texts(await client.post(f"/agents/{name}", json=run_body("hi", thread=name))) == f"I am {name}."
            )
            health = {"status": "ok", "agent": {"name": name}}
            assert (await client.get(f"/agents/{name}/health")).json() == health


async def test_a_router_and_the_default_path_are_served_and_dependencies_are_honoured() -> None:
    def refuse() -> None:
        raise HTTPException(401)

    router = APIRouter()
    add_langgraph_fastapi_endpoint(app=router, agent=LangGraphAgent(name="open", graph=saying()))
    app = FastAPI()
    app.include_router(router)
    closed = LangGraphAgent(name="closed", graph=saying())
    add_langgraph_fastapi_endpoint(app, closed, "closed", dependencies=[Depends(refuse)])
    async with client_of(app) as client:
        assert await texts(await client.post("/", json=run_body("hi"))) == "Hi."
        assert (await client.post("/closed", json=run_body("hi"))).status_code == 401


def test_an_option_that_no_route_has_is_refused() -> None:
    with pytest.raises(TypeError):
        add_langgraph_fastapi_endpoint(FastAPI(), LangGraphAgent(name="a", graph=saying()), "/", tagz=["x"])


async def test_an_app_with_its_own_cors_middleware_decides_which_pages_may_call() -> None:
    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="a", graph=saying()), "/a")
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.example"], allow_credentials=True)
    async with client_of(app) as client:
        response = await client.post("/a", json=run_body("hi"), headers={"Origin": "https://page.example"})
    assert (response.status_code, response.headers["access-control-allow-credentials"]) == (200, "true")


async def test_copilotkits_agent_and_one_with_a_run_of_its_own_are_served() -> None:
    class Loud(LangGraphAgent):
        async def run(self, input: RunAgentInput) -> Any:
            async for event in super().run(input):
                yield event.model_copy(update={"delta": event.delta.upper()}) if hasattr(event, "delta") else event

    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            return getattr(Loud(name="wrapped", graph=saying()), name)

        async def run(self, input: RunAgentInput) -> Any:
            async for event in LangGraphAgent(name="wrapped", graph=saying("Bye.")).run(input):
                yield event

    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, LangGraphAGUIAgent(name="kit", graph=saying(), description=""), "/kit")
    add_langgraph_fastapi_endpoint(app, Loud(name="loud", graph=saying()), "/loud")
    add_langgraph_fastapi_endpoint(app, Wrapper(), "/wrapped")
    async with client_of(app) as client:
        assert await texts(await client.post("/kit", json=run_body("hi", thread="a"))) == "Hi."
        assert await texts(await client.post("/loud", json=run_body("hi", thread="b"))) == "HI."
        assert await texts(await client.post("/wrapped", json=run_body("hi", thread="c"))) == "Bye."


def test_something_without_a_graph_is_refused() -> None:
    with pytest.raises(ConfigError):
        add_langgraph_fastapi_endpoint(FastAPI(), agent=type("Other", (), {"name": "x"})())
    with pytest.raises(ConfigError):
        LangGraphAgent(name="a", graph=saying(), subagent_visibility=ours.SUBAGENT_VISIBILITY_HIDDEN)


async def test_run_yields_models_that_the_encoder_accepts() -> None:
    agent = LangGraphAgent(name="a", graph=saying()).clone()
    stream = await events_of(agent, run_input())
    assert [stream[0].type.value, stream[-1].type.value] == ["RUN_STARTED", "RUN_FINISHED"]
    assert all(EventEncoder().encode(event).startswith("data: ") for event in stream)
    assert agent.get_capabilities()["humanInTheLoop"]["interrupts"]


async def test_the_config_reaches_the_graph() -> None:
    graph = saying(lambda config: f"{config['configurable']['flavour']} {config['metadata']['who']}")
    agent = LangGraphAgent(
        name="a", graph=graph, config={"configurable": {"flavour": "mint"}, "metadata": {"who": "me"}}
    )
    assert words(await events_of(agent, run_input())) == ["mint me"]


async def test_an_interrupt_is_custom_and_answered_by_the_command() -> None:
    def node(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"got {interrupt({'q': 1})}")]}

    graph = StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(checkpointer=InMemorySaver())
    agent = LangGraphAgent(name="a", graph=graph)
    *_, custom, end = await events_of(agent, run_input())
    assert (custom.name, json.loads(custom.value)) == ("on_interrupt", {"q": 1})  # type: ignore[attr-defined]
    assert (end.type.value, end.outcome) == ("RUN_FINISHED", None)  # type: ignore[attr-defined]
    answered = run_input(forwarded_props={"command": {"resume": '{"a": 2}'}})
    assert words(await events_of(agent, answered)) == ["got {'a': 2}"]
    quiet = LangGraphAgent(name="b", graph=graph, enable_legacy_on_interrupt_event=False)
    stream = await events_of(quiet, run_input(thread_id="t2"))
    assert "CUSTOM" not in {event.type.value for event in stream}
    assert stream[-1].outcome.type == "interrupt"  # type: ignore[attr-defined]
    *_, custom, end = await events_of(
        LangGraphAgent(name="c", graph=graph, emit_interrupt_outcome=True), run_input(thread_id="t3")
    )
    assert (custom.type.value, end.outcome.type) == ("CUSTOM", "interrupt")  # type: ignore[attr-defined]


async def test_a_failure_ends_with_run_error_without_its_text() -> None:
    def fail(config: Any) -> str:
        raise RuntimeError("secret")

    last = (await events_of(LangGraphAgent(name="a", graph=saying(fail)), run_input()))[-1]
    assert isinstance(last, RunErrorEvent)
    assert "secret" not in last.message


async def test_the_middleware_shows_arguments_as_state() -> None:
    class State(MessagesState):
        steps: list[str]

    middleware = StateStreamingMiddleware(StateItem("steps", "plan", "steps"))
    model = ScriptedModel(calls(call("c1", "plan", '{"steps": ["a"]}')), says("Done."))
    graph = create_agent(model, [plan], middleware=[middleware], state_schema=State)  # type: ignore[type-var]
    stream = await events_of(LangGraphAgent(name="a", graph=graph), run_input())
    (predicted,) = [event for event in stream if event.type.value == "CUSTOM"]
    assert predicted.value == [{"state_key": "steps", "tool": "plan", "tool_argument": "steps"}]  # type: ignore[attr-defined]


def plan(steps: list[str]) -> str:
    """Plans."""
    return "planned"


@pytest.mark.filterwarnings("ignore:.*get_config_jsonschema:DeprecationWarning")
async def test_the_same_graph_says_the_same_as_with_the_published_package() -> None:
    def scripted() -> ScriptedModel:
        turn = calls(call("c1", "get_weather", ROME), call("c2", "get_weather", '{"city": "Oslo"}', index=1))
        return ScriptedModel(turn, says("Sunny ", "in both."))

    found = []
    for agent_class in (LangGraphAgent, published.LangGraphAgent):
        graph = agent_graph(scripted(), get_weather, checkpointer=InMemorySaver())
        found.append(sorted(words(await events_of(agent_class(name="a", graph=graph), run_input()))))
    assert found[0] == found[1]


OURS = {name for name in published.__all__ if hasattr(ours, name)}
LEFT_OUT = {
    *(
        "ThinkingProcess",
        "MessageInProgress",
        "RunMetadata",
        "MessagesInProgressRecord",
        "ToolCall",
        "LangGraphReasoning",
    ),
    *("BaseLangGraphPlatformMessage", "LangGraphPlatformResultMessage", "LangGraphPlatformActionExecutionMessage"),
    "LangGraphPlatformMessage",
}
"""Names of the published package's own bookkeeping. `docs/how-to/migrate.md` lists them."""


async def test_an_agent_with_the_tool_for_a2ui_starts_and_its_model_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The import failed, and with it all agents of the server."""
    model = ScriptedModel(calls(call("c1", "generate_a2ui", '{"intent": "create"}')), says("In words, then."))
    tool = ours.get_a2ui_tools({"model": model, "default_catalog_id": ours.BASIC_CATALOG_ID})
    agent = LangGraphAgent(name="a", graph=create_agent(model, [tool]))
    said = words(await events_of(agent, run_input()))
    assert said[-1] == "In words, then."
    assert said[-2].startswith("c1: A2UI is not supported")
    assert "generate_a2ui" in caplog.text


def test_every_public_name_is_here_or_left_out_on_purpose() -> None:
    assert set(published.__all__) - OURS == LEFT_OUT
    for module in ("agent", "endpoint", "types", "utils", "middlewares.state_streaming"):
        assert importlib.import_module(f"ag_ui_langgraph.{module}")
        assert importlib.import_module(f"ambient_runner.compat.ag_ui_langgraph.{module}")


def test_the_arguments_have_the_published_names_and_defaults() -> None:
    def parameters(function: Any) -> dict[str, Any]:
        return {name: item.default for name, item in inspect.signature(function).parameters.items()}

    assert parameters(ours.LangGraphAgent.__init__) == parameters(published.LangGraphAgent.__init__)
    expected = parameters(published.add_langgraph_fastapi_endpoint)
    assert expected.items() <= parameters(ours.add_langgraph_fastapi_endpoint).items()
