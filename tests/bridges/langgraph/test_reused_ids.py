"""Models that count their calls anew in every answer: each call is one of its own to clients, and keeps the model's id in the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner.protocol import events as e
from ambient_runner.protocol.ids import client_safe_id
from tests.bridges.langgraph.scripted import ScriptedModel, atomic, call, calls, says
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph, react_agent, yes
from tests.machine_speed import unless_hung
from tests.world import KEY, events_of, request, user

ROME, OSLO = '{"city": "Rome"}', '{"city": "Oslo"}'
RED, BLUE = '{"color": "red"}', '{"color": "blue"}'
SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])
STREAMING = pytest.mark.parametrize("disable_streaming", [False, True], ids=["streamed", "whole"])


@tool
def book(city: str) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {interrupt({'message': 'Sure?', 'tool_call_id': 'c0'})}"


def of_calls(stream: list[str]) -> list[str]:
    """The events of calls, without their arguments, and the end of the run."""
    return [word.partition(" <")[0] for word in stream if word.startswith(("CS", "CE", "CR", "RF"))]


@SAVERS
@STREAMING
async def test_in_one_run_the_second_call_of_an_id_is_a_call_with_a_result_of_its_own(
    saver: Any, disable_streaming: bool
) -> None:
    turns = [calls(call("c0", "get_weather", ROME)), calls(call("c0", "get_weather", OSLO)), says("Sun.")]
    model = ScriptedModel(*turns, disable_streaming=disable_streaming)
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver())) as thread:
        assert of_calls(await thread.say("both?")) == [
            "CS c0 get_weather",
            "CE c0",
            'CR c0 "sunny in Rome"',
            "CS c0~2 get_weather",
            "CE c0~2",
            'CR c0~2 "sunny in Oslo"',
            "RF success",
        ]
    assert model.saw[2][1:] == [
        "ai: c0 get_weather {'city': 'Rome'}",
        "tool c0: sunny in Rome",
        "ai: c0 get_weather {'city': 'Oslo'}",
        "tool c0: sunny in Oslo",
    ]


@SAVERS
@STREAMING
async def test_in_the_next_run_too_and_the_model_sees_both_under_its_own_id(
    saver: Any, disable_streaming: bool
) -> None:
    turns = [calls(call("c0", "get_weather", ROME)), says("One."), calls(call("c0", "get_weather", OSLO)), says("Two.")]
    model = ScriptedModel(*turns, says("Three."), disable_streaming=disable_streaming)
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver())) as thread:
        await thread.say("Rome?")
        assert of_calls(await thread.say("Oslo?")) == [
            "CS c0~2 get_weather",
            "CE c0~2",
            'CR c0~2 "sunny in Oslo"',
            "RF success",
        ]
        await thread.say("sure?")
    assert model.saw[4] == [
        "user: Rome?",
        "ai: c0 get_weather {'city': 'Rome'}",
        "tool c0: sunny in Rome",
        "ai: One.",
        "user: Oslo?",
        "ai: c0 get_weather {'city': 'Oslo'}",
        "tool c0: sunny in Oslo",
        "ai: Two.",
        "user: sure?",
    ]


@SAVERS
@STREAMING
async def test_a_second_frontend_call_waits_for_the_client_and_its_answer_reaches_the_model(
    saver: Any, disable_streaming: bool
) -> None:
    turns = [calls(call("c0", "change_background", RED)), calls(call("c0", "change_background", BLUE)), says("Blue.")]
    model = ScriptedModel(*turns, disable_streaming=disable_streaming)
    async with langgraph(agent_graph(model, checkpointer=saver()), tools=[TOOL]) as thread:
        assert (await thread.say("red, then blue"))[-1] == "RF waits for c0"
        assert of_calls(await thread.answer(c0="is red")) == [
            "CS c0~2 change_background",
            "CE c0~2",
            "RF waits for c0~2",
        ]
        assert (await thread.answer(**{"c0~2": "is blue"}))[-1] == "RF success"
    assert model.saw[2][1:] == [
        "ai: c0 change_background {'color': 'red'}",
        "tool c0: is red",
        "ai: c0 change_background {'color': 'blue'}",
        "tool c0: is blue",
    ]


async def test_the_answer_finds_its_call_after_a_restart(tmp_path: Path) -> None:
    turns = [calls(call("c0", "get_weather", ROME)), calls(call("c0", "change_background", BLUE)), says("Blue.")]
    model = ScriptedModel(*turns)
    for turn in range(2):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            graph = agent_graph(model, get_weather, checkpointer=saver)
            async with langgraph(graph, tools=[TOOL], store=tmp_path / "ledger.db") as thread:
                if turn == 0:
                    assert (await thread.say("go"))[-1] == "RF waits for c0~2"
                else:
                    assert (await thread.answer(**{"c0~2": "is blue"}))[-1] == "RF success"
    assert model.saw[2][2:] == [
        "tool c0: sunny in Rome",
        "ai: c0 change_background {'color': 'blue'}",
        "tool c0: is blue",
    ]


async def test_a_conversation_whose_checkpoints_are_lost_is_restored_with_the_models_ids(tmp_path: Path) -> None:
    turns = [calls(call("c0", "get_weather", ROME)), calls(call("c0", "change_background", BLUE)), says("Blue.")]
    model = ScriptedModel(*turns)
    for turn in range(2):
        graph = agent_graph(model, get_weather, checkpointer=InMemorySaver())
        async with langgraph(graph, tools=[TOOL], store=tmp_path / "ledger.db") as thread:
            await (thread.say("go") if turn == 0 else thread.answer(**{"c0~2": "is blue"}))
    assert model.saw[2] == [
        "user: go",
        "ai: c0 get_weather {'city': 'Rome'}",
        "tool c0: sunny in Rome",
        "ai: c0 change_background {'color': 'blue'}",
        "tool c0: is blue",
    ]


@SAVERS
async def test_an_abandoned_call_does_not_hide_the_next_one_with_its_id(saver: Any) -> None:
    turns = [calls(call("c0", "change_background", RED)), calls(call("c0", "change_background", BLUE)), says("Blue.")]
    model = ScriptedModel(*turns)
    async with langgraph(agent_graph(model, checkpointer=saver()), tools=[TOOL]) as thread:
        await thread.say("red")
        assert of_calls(await thread.say("no, blue")) == [
            "CS c0~2 change_background",
            "CE c0~2",
            "RF waits for c0~2",
        ]
        assert (await thread.answer(**{"c0~2": "is blue"}))[-1] == "RF success"
    assert model.saw[2] == [
        "user: red",
        "ai: c0 change_background {'color': 'red'}",
        "tool c0: This call was cancelled: it was never answered. error",
        "user: no, blue",
        "ai: c0 change_background {'color': 'blue'}",
        "tool c0: is blue",
    ]


@SAVERS
@STREAMING
async def test_two_calls_of_one_id_in_one_turn_are_two(saver: Any, disable_streaming: bool) -> None:
    model = ScriptedModel(
        calls(call("c0", "get_weather", ROME), call("c0", "get_weather", OSLO, index=1)),
        says("Sun."),
        disable_streaming=disable_streaming,
    )
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver())) as thread:
        assert of_calls(await thread.say("both?")) == [
            "CS c0 get_weather",
            "CS c0~2 get_weather",
            "CE c0",
            "CE c0~2",
            'CR c0 "sunny in Rome"',
            'CR c0~2 "sunny in Oslo"',
            "RF success",
        ]


@pytest.mark.parametrize("build", [agent_graph, react_agent])
async def test_a_tool_interrupts_in_the_second_call_of_an_id_and_the_answer_resumes_it(build: Any) -> None:
    turns = [calls(call("c0", "get_weather", ROME)), calls(call("c0", "book", OSLO)), calls(call("c0", "book", ROME))]
    model = ScriptedModel(*turns, says("Done."))
    async with langgraph(build(model, get_weather, book, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        assert raised.tool_call_id == "c0~2"
        assert of_calls(await thread.resume(yes(raised, 1))) == [
            'CR c0~2 "booked Oslo: 1"',
            "CS c0~3 book",
            "CE c0~3",
            "RF asks input_required",
        ]
        assert thread.interrupts[0].tool_call_id == "c0~3"
        assert of_calls(await thread.resume(yes(thread.interrupts[0], 2)))[0] == 'CR c0~3 "booked Rome: 2"'
    results = [one for one in model.saw[3] if one.startswith("tool")]
    assert results == ["tool c0: sunny in Rome", "tool c0: booked Oslo: 1", "tool c0: booked Rome: 2"]


async def test_a_node_that_runs_again_after_its_interrupt_makes_the_call_clients_know() -> None:
    """The model is called again, and with such a model it is the same id: one call to clients, with one result."""
    model = ScriptedModel(script=lambda messages: calls(call("c0", "get_weather", ROME)))

    async def careful(state: MessagesState) -> Any:
        reply = await model.ainvoke(state["messages"])
        return {"messages": [reply, ToolMessage(f"sunny: {interrupt('Sure?')}", tool_call_id="c0")]}

    graph = StateGraph(MessagesState).add_node("careful", careful).add_edge(START, "careful")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        assert of_calls(await thread.say("go"))[:2] == ["CS c0 get_weather", "CE c0"]
        assert of_calls(await thread.resume(yes(thread.interrupts[0], 1))) == ['CR c0 "sunny: 1"', "RF success"]


async def test_subgraphs_side_by_side_may_use_one_id() -> None:
    def helper(city: str) -> Any:
        model = ScriptedModel(calls(call("c0", "get_weather", f'{{"city": "{city}"}}')), says(f"{city}."))
        return agent_graph(model, get_weather)

    graph = StateGraph(MessagesState)
    for city in ("Rome", "Oslo"):
        graph.add_node(city, helper(city)).add_edge(START, city)
    async with langgraph(graph.compile()) as thread:
        await thread.say("go")
    started = {event.subagent_run_id: event.name for event in thread.events if isinstance(event, e.SubagentStarted)}
    begun = {
        one.tool_call_id: started[one.subagent_run_id or ""]
        for one in thread.events
        if isinstance(one, e.ToolCallStart)
    }
    results = {one.tool_call_id: one.content for one in thread.events if isinstance(one, e.ToolCallResult)}
    assert begun.keys() == {"c0", "c0~2"}
    assert results == {client_id: f"sunny in {city}" for client_id, city in begun.items()}


@SAVERS
async def test_an_id_that_is_too_long_for_clients_is_another_to_them_and_the_models_own_to_the_graph(
    saver: Any,
) -> None:
    long = "c" * 300
    model = ScriptedModel(calls(call(long, "change_background", RED)), says("Red."))
    async with langgraph(agent_graph(model, checkpointer=saver()), tools=[TOOL]) as thread:
        await thread.say("red")
        assert isinstance(thread.end.outcome, e.Success)
        (client_id,) = thread.end.outcome.pending_tool_call_ids or []
        assert client_id == client_safe_id(long)
        assert (await thread.run(e.ToolMessage(id="answer", tool_call_id=client_id, content="is red")))[
            -1
        ] == "RF success"
    assert model.saw[1][1:] == [f"ai: {long} change_background {{'color': 'red'}}", f"tool {long}: is red"]


@SAVERS
async def test_a_call_that_a_stop_left_without_a_result_does_not_get_that_of_another(saver: Any) -> None:
    entered, hang, visits = anyio.Event(), anyio.Event(), iter(range(2))

    @tool
    async def look() -> str:
        """Takes long the second time."""
        if next(visits):
            entered.set()
            await hang.wait()
        return "seen"

    model = ScriptedModel(calls(call("c0", "look")), calls(call("c0", "look")), says("ok"))
    async with langgraph(agent_graph(model, look, checkpointer=saver())) as thread:
        started = await thread.runner.start(request(user("u1", "go")))
        with unless_hung():
            await entered.wait()
            await thread.runner.stop(KEY)
            await events_of(thread.runner, started)
        await thread.run(user("u2", "on"))
    assert model.saw[2] == [
        "user: go",
        "ai: c0 look {}",
        "tool c0: seen",
        "ai: c0 look {}",
        "tool c0: This call was cancelled: it was never answered. error",
        "user: on",
    ]


async def test_a_rewind_removes_the_aliases_of_removed_calls() -> None:
    turns = [calls(call("c0", "get_weather", ROME)), says("One.")]
    turns += [
        calls(call("c0", "get_weather", OSLO)),
        says("Two."),
        calls(call("c0", "get_weather", OSLO)),
        says("Again."),
    ]
    model = ScriptedModel(*turns)
    async with langgraph(agent_graph(model, get_weather, checkpointer=InMemorySaver())) as thread:
        await thread.say("Rome?")
        await thread.say("Oslo?")
        assert of_calls(await thread.run(user("u2", "Oslo?")))[2] == 'CR c0~2 "sunny in Oslo"'
    assert model.saw[5][-2:] == ["ai: c0 get_weather {'city': 'Oslo'}", "tool c0: sunny in Oslo"]


async def test_a_message_made_by_hand_with_an_answered_id_is_a_new_call() -> None:
    def node(state: MessagesState) -> Any:
        made = {"id": "c0", "name": "look", "args": {}}
        return {"messages": [AIMessage("", tool_calls=[made]), ToolMessage("seen", tool_call_id="c0")]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("a")
        assert of_calls(await thread.say("b")) == ["CS c0~2 look", "CE c0~2", 'CR c0~2 "seen"', "RF success"]


@STREAMING
@pytest.mark.parametrize("turn", [call, lambda *args: atomic(*args[:2], {"city": "Rome"})], ids=["pieces", "at once"])
async def test_a_call_without_an_id_is_emitted_with_its_arguments_under_a_new_id(
    turn: Any, disable_streaming: bool
) -> None:
    model = ScriptedModel(
        *[calls(turn("", "get_weather", '{"city":"Rome"}')), says("ok")] * 2, disable_streaming=disable_streaming
    )
    async with langgraph(agent_graph(model, get_weather, checkpointer=InMemorySaver())) as thread:
        for suffix in ("", "~2"):
            reply = [word.replace('": "', '":"') for word in await thread.say("go") if word.startswith("C")]
            client_id = reply[0].split()[1]
            assert client_id.removesuffix(suffix).startswith("id-")
            assert reply == [
                f"CS {client_id} get_weather < m1",
                f'CA {client_id} {{"city":"Rome"}}',
                f"CE {client_id}",
                f'CR {client_id} "sunny in Rome"',
            ]
    assert model.saw[-1][4:] == ["user: go", "ai:  get_weather {'city': 'Rome'}", "tool : sunny in Rome"]
