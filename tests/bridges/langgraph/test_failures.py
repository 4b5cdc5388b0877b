"""Failures of runs, and their options: limits, context, configuration, wrong graphs."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.bridges.registry import load_agent
from ambient_runner.errors import ConfigError
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.langgraph.scripted import ScriptedModel, call, says, text
from tests.bridges.langgraph.world import agent_graph, get_weather, langgraph, verify
from tests.world import structs_of, user


async def test_a_graph_that_goes_round_for_ever_ends_at_its_limit() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("round", lambda state: {"messages": []})
    graph.add_edge(START, "round")
    graph.add_edge("round", "round")
    async with langgraph(graph.compile(), LangGraphConfig(recursion_limit=5)) as thread:
        await thread.say("go")
    assert thread.error == "recursion_limit"


@pytest.mark.parametrize(
    "turn",
    [
        [RuntimeError("secret reason")],
        [*text("Well, "), RuntimeError("secret reason")],
        [*call("c1", "get_weather", '{"ci'), RuntimeError("secret reason")],
    ],
    ids=["at once", "in a text", "in a call"],
)
async def test_a_model_that_fails_ends_its_open_message_without_showing_the_cause(turn: Any) -> None:
    async with langgraph(agent_graph(ScriptedModel(turn), get_weather)) as thread:
        await thread.say("go")
    assert thread.error == "langgraph_error"
    assert "secret reason" not in repr(thread.events)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "in a thread"])
async def test_a_node_that_would_end_the_process_fails_its_run_alone(is_async: bool) -> None:
    async def exits_as_a_task(state: MessagesState) -> Any:
        sys.exit(3)

    def exits_in_a_thread(state: MessagesState) -> Any:
        sys.exit(3)

    node = exits_as_a_task if is_async else exits_in_a_thread
    async with langgraph(StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()) as thread:
        await thread.say("go")
        assert thread.error == "agent_error"
        await thread.say("again")
        assert thread.error == "agent_error"


async def test_a_node_that_fails_in_a_subgraph_fails_its_subagent() -> None:
    def broken(state: Any) -> Any:
        raise ValueError("no")

    inner = StateGraph(MessagesState).add_node("broken", broken).add_edge(START, "broken").compile()
    outer = StateGraph(MessagesState).add_node("helper", inner).add_edge(START, "helper").compile()
    async with langgraph(outer) as thread:
        assert await thread.say("go") == ["SUB s1 helper", "FAILED SUB s1"]
    assert thread.error == "langgraph_error"


class Context(TypedDict, total=False):
    user: str
    tone: str


async def test_the_context_has_the_servers_values_and_those_a_client_may_set() -> None:
    seen: list[Any] = []

    async def node(state: MessagesState, runtime: Runtime[Context]) -> Any:
        seen.append(runtime.context)
        return {}

    graph = StateGraph(MessagesState, context_schema=Context).add_node("node", node).add_edge(START, "node").compile()
    config = LangGraphConfig(context=lambda run_input: {"user": "ada"}, client_context=["tone", "user"])
    async with langgraph(graph, config) as thread:
        await thread.say("a", forwarded_props={"context": {"tone": "kind", "user": "eve", "role": "admin"}})
    assert seen == [{"tone": "kind", "user": "ada"}]


async def test_the_context_hook_gets_the_forwarded_props_that_the_options_allow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def context(run_input: Any) -> dict[str, Any]:
        seen.append(run_input.forwarded_props)
        return {}

    async def node(state: MessagesState) -> Any:
        return {}

    graph = StateGraph(MessagesState, context_schema=Context).add_node("node", node).add_edge(START, "node").compile()
    config = LangGraphConfig(context=context, client_context=["tone"], configurable=["model"])
    props = {
        "context": {"tone": "kind", "role": "admin"},
        "configurable": {"model": "small", "thread_id": "another"},
        "command": {"goto": "end"},
        "checkpointId": "c",
        "user_id": "eve",
    }
    async with langgraph(graph, config) as thread:
        await thread.say("a", forwarded_props=props)
    assert seen == [{"context": {"tone": "kind"}, "configurable": {"model": "small"}}]
    assert [record.args for record in caplog.records if record.name == "ambient_runner.runs.lowering_log"] == [
        ("agent", "forwardedProps.context.role", "client_context"),
        ("agent", "forwardedProps.configurable.thread_id", "configurable"),
        ("agent", "forwardedProps.command.goto", "time_travel"),
        ("agent", "forwardedProps.checkpointId", "time_travel"),
        ("agent", "forwardedProps.user_id", "forwarded_props"),
    ]


async def test_a_rewind_holds_when_the_context_fails() -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))
    hook: list[Any] = [{}, {}, RuntimeError("no such user"), {}]

    def context(run_input: Any) -> Any:
        result = hook.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def node(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState, context_schema=Context).add_node("node", node).add_edge(START, "node")
    async with langgraph(graph.compile(checkpointer=InMemorySaver()), LangGraphConfig(context=context)) as thread:
        await thread.say("a")
        await thread.say("b")
        await thread.run(user("u1", "a"), user("u2", "b"))
        assert thread.error == "langgraph_error"
        await thread.say("c")
    assert model.saw[2] == ["user: a", "ai: one", "user: b", "user: c"]


async def test_a_client_configures_what_is_listed_and_nothing_else() -> None:
    seen: list[Any] = []

    async def node(state: MessagesState, config: RunnableConfig) -> Any:
        seen.append({name: config["configurable"].get(name) for name in ("model", "admin", "thread_id")})
        return {}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    async with langgraph(graph, LangGraphConfig(configurable=["model", "thread_id"])) as thread:
        props = {"configurable": {"model": "small", "admin": True, "thread_id": "another"}}
        await thread.say("a", forwarded_props=props)
    assert seen == [{"model": "small", "admin": None, "thread_id": "default/local/t"}]


async def test_a_command_of_the_client_is_obeyed_where_that_is_allowed() -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]
        where: str

    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"where": "a"})
    graph.add_node("b", lambda state: {"where": f"b after {state.get('where')}"})
    graph.add_edge(START, "a")
    config = LangGraphConfig(time_travel=True)
    async with langgraph(graph.compile(checkpointer=InMemorySaver()), config) as thread:
        await thread.say("go")
        stream = await thread.say("again", forwarded_props={"command": {"goto": "b", "update": {"where": "x"}}})
    assert 'SD [{"op": "replace", "path": "/where", "value": "b after x"}]' in stream


@pytest.mark.parametrize("wrong", [StateGraph(MessagesState), 7, None], ids=["not compiled", "a number", "nothing"])
def test_an_object_that_is_not_a_graph_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        LangGraphBridge(wrong)


def test_a_graph_is_here_or_on_a_server_and_not_both() -> None:
    with pytest.raises(ConfigError):
        LangGraphBridge(agent_graph(ScriptedModel()), url="http://127.0.0.1:9")


async def test_a_factory_that_returns_no_graph_is_refused_when_it_is_called() -> None:
    async with langgraph(lambda: StateGraph(MessagesState)) as thread:
        await thread.say("go")
    assert thread.error == "agent_error"  # What is wrong with the factory is for the log.


def test_a_compiled_graph_is_served_as_it_is() -> None:
    name, bridge = load_agent("mine=tests.bridges.langgraph.contract:scripted_graph")
    assert (name, type(bridge), bridge.capabilities()) == (
        "mine",
        LangGraphBridge,
        FrameworkCapabilities(session_persistence=True, thinking=True),
    )


async def test_it_also_runs_without_a_server_and_keeps_its_thread() -> None:
    model = ScriptedModel(says("one"), says("two"))
    adapter = LangGraphBridge(agent_graph(model, checkpointer=InMemorySaver())).create_adapter(PlatformContext())
    messages: list[e.Message] = []
    for at, words in enumerate("ab"):
        messages.append(e.UserMessage(id=f"u{at}", content=words))
        run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=list(messages))
        events = [event async for event in structs_of(adapter.run(input_to_agui(run_input)))]
        verify([e.RunStarted(thread_id="t", run_id="r"), *events])
    assert model.saw == [["user: a"], ["user: a", "ai: one", "user: b"]]
