"""Calls that are not executed because their arguments are not a JSON object: clients get a result that says so."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.test_interrupts import book
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph, react_agent, yes

ROME = '{"city": "Rome"}'
REFUSED = '"The arguments of this call are not a JSON object, so it was not executed." error'
SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


def of(call_id: str, stream: list[str]) -> list[str]:
    return [word for word in stream if word.startswith((f"CE {call_id}", f"CR {call_id}", "RF"))]


@SAVERS
@pytest.mark.parametrize("build", [agent_graph, react_agent])
@pytest.mark.parametrize("arguments", ["{city: Rome}", "[1]", "Rome"])
async def test_a_call_whose_arguments_are_no_json_object_gets_a_result_and_the_thread_continues(
    saver: Any, build: Any, arguments: str
) -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", arguments)), says("ok"))
    async with langgraph(build(model, get_weather, checkpointer=saver())) as thread:
        assert of("c1", await thread.say("go")) == ["CE c1", f"CR c1 {REFUSED}", "RF success"]
        await thread.say("on")
        assert thread.text() == "ok"
    assert model.saw[1][-1] == "user: on"


async def test_the_model_sees_the_call_and_why_it_was_refused() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", "{city: Rome}")), says("ok"))
    async with langgraph(agent_graph(model, get_weather)) as thread:
        await thread.say("go")
        await thread.say("on")
    why = "tool c1: The arguments of this call are not a JSON object, so it was not executed. error"
    assert model.saw[1] == ["user: go", "ai: c1 get_weather {}", why, "user: on"]


async def test_the_clients_call_with_such_arguments_is_not_waited_for() -> None:
    model = ScriptedModel(
        calls(call("f1", "change_background", "{"), call("f2", "change_background", "red", index=1)), says("ok")
    )
    async with langgraph(agent_graph(model, checkpointer=InMemorySaver()), tools=[TOOL]) as thread:
        stream = await thread.say("go")
    assert [*of("f1", stream)[:-1], *of("f2", stream)] == ["CE f1", "CE f2", f"CR f2 {REFUSED}", "RF waits for f1"]


async def test_the_other_calls_of_the_turn_are_executed_and_may_interrupt() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME), call("c2", "get_weather", "Rome", index=1)), says("ok"))
    async with langgraph(agent_graph(model, book, get_weather, checkpointer=InMemorySaver())) as thread:
        assert of("c2", await thread.say("go")) == ["CE c2", f"CR c2 {REFUSED}", "RF asks input_required"]
        assert of("c", await thread.resume(yes(thread.interrupts[0], 1)))[-1] == "RF success"


async def test_a_call_that_the_sdk_takes_although_its_end_is_missing_is_not_refused_while_it_asks() -> None:
    model = ScriptedModel(calls(call("c1", "book", '{"city": "Rome"')), says("ok"))
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver())) as thread:
        assert of("c1", await thread.say("go")) == ["CE c1", "RF asks input_required"]
        assert (await thread.resume(yes(thread.interrupts[0], 1)))[0] == 'CR c1 "booked Rome: 1"'


async def test_a_graph_that_answers_such_a_call_itself_takes_precedence() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", "Rome")))

    async def agent(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def mend(state: MessagesState) -> Any:
        message = state["messages"][-1]
        assert isinstance(message, AIMessage)
        refused = [ToolMessage("Write JSON.", tool_call_id=one["id"] or "") for one in message.invalid_tool_calls]
        return {"messages": refused}

    graph = StateGraph(MessagesState).add_node("agent", agent).add_node("mend", mend)
    async with langgraph(graph.add_edge(START, "agent").add_edge("agent", "mend").compile()) as thread:
        assert of("c1", await thread.say("go")) == ["CE c1", 'CR c1 "Write JSON."', "RF success"]
