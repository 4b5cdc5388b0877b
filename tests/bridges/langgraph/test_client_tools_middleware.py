"""The client's tools in agents of LangChain's `create_agent`, with the middleware ClientTools and without it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver

from ambient_runner.langgraph import ClientTools
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, get_weather, langgraph, yes

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
    assert model.bound == ["get_weather"]


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
