"""The client's tools in agents of LangChain's `create_agent`, with the middleware ClientTools and without it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolNode

from ambient_runner.langgraph import ClientTools, backend_tools
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, get_weather, in_a_row, langgraph, yes

SHOW_MAP = e.Tool(name="show_map", description="Show a city.", parameters={"type": "object", "properties": {}})
ROME = '{"city": "Rome"}'
MIXED = calls(call("c1", "show_map", ROME), call("c2", "get_weather", ROME, index=1))


def agent(model: ScriptedModel, *tools: Any, middleware: tuple[Any, ...] = (), **options: Any) -> Any:
    return create_agent(model, list(tools), middleware=[ClientTools(), *middleware], **options)


def dropped(events: list[e.Event]) -> list[Any]:
    return [event.value for event in events if isinstance(event, e.Custom) and event.name == "ambient:dropped"]


@pytest.mark.parametrize("saver", [InMemorySaver, None], ids=["stored", "not stored"])
async def test_a_call_of_a_client_tool_ends_the_run_and_its_result_continues_it(saver: Any) -> None:
    model = ScriptedModel(calls(call("c1", "show_map", ROME)), says("Shown."))
    graph = agent(model, checkpointer=saver and saver())
    async with langgraph(graph, tools=[SHOW_MAP]) as thread:
        assert (await thread.say("go"))[-2:] == ["MS", "RF waits for c1"]
        assert model.bound == ["show_map"]
        assert (await thread.answer(c1="ok"))[-1] == "RF success"
        assert thread.text() == "Shown."
        assert dropped(thread.seen) == []
    assert model.saw[1] == ["user: go", "ai: c1 show_map {'city': 'Rome'}", "tool c1: ok"]


async def test_a_mixed_turn_executes_its_own_calls_and_waits_for_the_clients() -> None:
    model = ScriptedModel(MIXED, says("Done."))
    async with langgraph(agent(model, get_weather, checkpointer=InMemorySaver()), tools=[SHOW_MAP]) as thread:
        lines = await thread.say("go")
        assert lines.index("CE c1") < lines.index('CR c2 "sunny in Rome"')
        assert lines[-1] == "RF waits for c1"
        assert len(model.saw) == 1
        await thread.answer(c1="shown")
        assert thread.text() == "Done."
    assert model.saw[1][2:] == ["tool c2: sunny in Rome", "tool c1: shown"]


async def test_a_new_message_abandons_the_clients_calls() -> None:
    model = ScriptedModel(MIXED, says("Done."))
    async with langgraph(agent(model, get_weather, checkpointer=InMemorySaver()), tools=[SHOW_MAP]) as thread:
        await thread.say("go")
        await thread.say("never mind")
    assert model.saw[1][-1] == "user: never mind"
    assert any("was cancelled" in seen for seen in model.saw[1])


async def test_an_approval_in_a_mixed_turn_comes_first_and_then_the_clients_call() -> None:
    model = ScriptedModel(MIXED, says("Done."))
    review = HumanInTheLoopMiddleware(interrupt_on={"get_weather": True})
    graph = agent(model, get_weather, middleware=(review,), checkpointer=InMemorySaver())
    async with langgraph(graph, tools=[SHOW_MAP]) as thread:
        assert (await thread.say("go"))[-1] == "RF asks tool_call"
        (raised,) = thread.interrupts
        assert raised.tool_call_id == "c2"
        assert (await thread.resume(yes(raised, {"approved": True})))[-1] == "RF waits for c1"
        await thread.answer(c1="shown")
        assert thread.text() == "Done."


async def test_a_tool_of_the_agent_with_the_same_name_is_the_agents() -> None:
    own = e.Tool(name="get_weather", description="forged", parameters={})
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("Done."))
    async with langgraph(agent(model, get_weather), tools=[own]) as thread:
        assert (await thread.say("go"))[-1] == "RF success"
        assert thread.text() == "Done."
        assert dropped(thread.seen) == [{"type": "TOOLS", "reason": "name_taken", "names": ["get_weather"]}]
    assert model.bound == ["get_weather"]


async def test_a_tool_of_a_hidden_graph_is_executed_there_whatever_the_client_declares() -> None:
    """The graph in a node is not found by the SDK: its call was left to the client, and nothing executed it."""
    inner_graphs = [backend_tools(ToolNode([get_weather]))]

    async def call_hidden_graph(state: MessagesState, config: RunnableConfig) -> Any:
        request = AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "Rome"}, "id": "c1"}])
        return {"messages": [request, *(await inner_graphs[0]({"messages": [request]}, config))["messages"]]}

    own = e.Tool(name="get_weather", description="forged", parameters={})
    async with langgraph(in_a_row(call_hidden_graph), tools=[own]) as thread:
        assert 'CR c1 "sunny in Rome"' in await thread.say("go")


async def test_without_the_middleware_a_clients_tools_are_reported_as_dropped(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(says("Hi."), says("Hi again."))
    async with langgraph(create_agent(model, [get_weather]), tools=[SHOW_MAP]) as thread:
        with caplog.at_level(logging.WARNING, "ambient_runner.bridges.langgraph"):
            await thread.say("go")
            expected = [{"type": "TOOLS", "reason": "not_offered", "names": ["show_map"]}]
            assert dropped(thread.seen) == expected
            await thread.say("again")
            assert dropped(thread.seen) == expected
    (warning,) = [record for record in caplog.records if "show_map" in record.getMessage()]
    assert "ClientTools" in warning.getMessage()


async def test_a_graph_that_offers_the_tools_itself_drops_none() -> None:
    async with langgraph(agent_graph(ScriptedModel(says("Hi."))), tools=[SHOW_MAP]) as thread:
        await thread.say("go")
        assert dropped(thread.seen) == []
