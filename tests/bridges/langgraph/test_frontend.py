"""Tools of the client: offered to the model, left alone by the graph's own tools, answered in the next run."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.client_tools import client_tools, is_client_tool
from ambient_runner.bridges.langgraph.request import platform, request_context
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph, summarize

ROME = '{"city": "Rome"}'
RED = '{"color": "red"}'
SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


@SAVERS
async def test_a_call_of_the_clients_tool_ends_the_run_and_its_result_continues(saver: Any) -> None:
    model = ScriptedModel(calls(call("f1", "change_background", RED)), says("It is red."))
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver()), tools=[TOOL]) as thread:
        assert await thread.say("red") == [
            "CS f1 change_background < m1",
            f"CA f1 {RED}",
            "CE f1",
            "MS",
            "RF waits for f1",
        ]
        assert model.bound == ["get_weather", "change_background"]
        assert await thread.answer(f1="done") == ["TS m1", 'TC m1 "It is red."', "TE m1", "MS", "RF success"]
    assert model.saw == [["user: red"], ["user: red", "ai: f1 change_background {'color': 'red'}", "tool f1: done"]]


@SAVERS
async def test_the_graphs_own_calls_in_the_same_message_are_executed_first(saver: Any) -> None:
    model = ScriptedModel(
        calls(call("f1", "change_background", RED), call("c1", "get_weather", ROME, index=1)), says("Both.")
    )
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver()), tools=[TOOL]) as thread:
        assert (await thread.say("both"))[-5:] == [
            "CE f1",
            "CE c1",
            'CR c1 "sunny in Rome"',
            "MS",
            "RF waits for f1",
        ]
        assert len(model.saw) == 1
        await thread.answer(f1="done")
    results = ["tool c1: sunny in Rome", "tool f1: done"]
    assert model.saw[1][:2] == [
        "user: both",
        "ai: f1 change_background {'color': 'red'} c1 get_weather {'city': 'Rome'}",
    ]
    assert sorted(model.saw[1][2:]) == results


async def test_an_error_of_the_clients_tool_is_one_to_the_model_and_an_empty_result_says_something() -> None:
    model = ScriptedModel(calls(call("f1", "change_background"), call("f2", "change_background", index=1)), says("ok"))
    async with langgraph(agent_graph(model, checkpointer=InMemorySaver()), tools=[TOOL]) as thread:
        await thread.say("go")
        await thread.answer(f1={"content": "", "error": "no such colour"}, f2="")
    assert model.saw[1][2:] == ["tool f1: no such colour error", "tool f2: (empty)"]


async def test_a_state_with_a_key_for_tools_gets_them_and_clients_neither_see_nor_set_it() -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]
        tools: list[Any]
        copilotkit: dict[str, Any]

    seen: list[Any] = []

    def node(state: State) -> Any:
        seen.append((state["tools"], state["copilotkit"]))
        return {"messages": []}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph, tools=[TOOL]) as thread:
        context = [e.Context(description="page", value="home")]
        await thread.say("go", state={"tools": ["forged"], "colour": "red"}, context=context)
        stream = summarize(thread.seen)
        thread.tools = []
        await thread.say("again")
    spec = {
        "type": "function",
        "function": {
            "name": "change_background",
            "description": "Change the colour of the page.",
            "parameters": {
                "type": "object",
                "properties": {"color": {"type": "string"}},
                "required": ["color"],
            },
        },
    }
    assert seen == [
        ([spec], {"actions": [spec], "context": [{"description": "page", "value": "home"}]}),
        ([], {"actions": [], "context": []}),
    ]
    assert [word for word in stream if word.startswith("S")] == ['SS {"colour": "red"}']


async def test_a_node_can_read_the_clients_context_and_the_platforms_values() -> None:
    seen: list[Any] = []

    async def node(state: Any) -> Any:
        seen.append((is_client_tool("change_background"), is_client_tool("other"), request_context(), platform()))
        return {"messages": []}

    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
    async with langgraph(graph, tools=[TOOL]) as thread:
        await thread.say("go", context=[e.Context(description="page", value="home")])
    assert seen == [(True, False, [{"description": "page", "value": "home"}], {})]


def test_outside_of_a_run_there_are_no_tools_of_a_client() -> None:
    assert (client_tools(), is_client_tool("x"), request_context(), platform()) == ([], False, [], {})


async def test_a_client_cannot_replace_a_tool_of_the_graph() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("Sun."))
    forged = e.Tool(name="get_weather", description="Mine.", parameters={"type": "object"})
    async with langgraph(agent_graph(model, get_weather), tools=[forged, TOOL]) as thread:
        assert 'CR c1 "sunny in Rome"' in await thread.say("go")
    assert model.bound == ["get_weather", "change_background"]


async def test_the_platform_reaches_the_nodes_and_a_factory() -> None:
    seen: list[Any] = []

    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]

    def node(state: State) -> Any:
        seen.append(platform())
        return {"messages": []}

    def make(ctx: PlatformContext) -> Any:
        seen.append(ctx.custom_tools)
        return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()

    context = PlatformContext(model="small", system_prompt_append="Be kind.", custom_tools=["mine"])
    run_input = e.RunAgentInput(thread_id="t", run_id="r", messages=[e.UserMessage(id="u1", content="go")])
    async for _ in LangGraphBridge(make).create_adapter(context).run(input_to_agui(run_input)):
        pass
    assert seen == [["mine"], {"model": "small", "system_prompt_append": "Be kind."}]


async def test_a_client_tool_whose_name_no_provider_accepts_is_not_offered_to_the_model() -> None:
    model = ScriptedModel(says("Hi."))
    tools = [TOOL, e.Tool(name="change background!", description="")]
    async with langgraph(agent_graph(model, get_weather), tools=tools) as thread:
        await thread.say("go")
    assert model.bound == ["get_weather", "change_background"]
