"""Questions to people: `interrupt()` in nodes, tools and subgraphs, and breakpoints."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.errors import InterruptNotOpen, PendingInterrupts
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph, no, react_agent, steps, yes
from tests.versions.marks import requires

ROME = '{"city": "Rome"}'


@tool
def book(city: str) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {interrupt({'message': f'Book {city}?', 'city': city})!r}"


def asking(*questions: Any, checkpointer: Any = None) -> Any:
    """A graph whose nodes ask side by side and say what they were answered."""

    def node(question: Any) -> Any:
        def ask(state: MessagesState) -> Any:
            return {"messages": [AIMessage(f"{question}={interrupt(question)!r}")]}

        return ask

    graph = StateGraph(MessagesState)
    for at, question in enumerate(questions):
        graph.add_node(f"n{at}", node(question))
        graph.add_edge(START, f"n{at}")
    return graph.compile(checkpointer=checkpointer or InMemorySaver())


async def test_a_tool_interrupts_and_the_answer_resumes_it() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME), call("c2", "get_weather", ROME, index=1)), says("Done."))
    graph = agent_graph(model, book, get_weather, checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        first = await thread.say("go")
        assert first[-4:] == ["CE c1", "CE c2", "MS", "RF asks input_required"]
        (raised,) = thread.interrupts
        state = await graph.aget_state({"configurable": {"thread_id": "default/local/t"}})
        assert raised == e.Interrupt(
            id=state.interrupts[0].id,
            reason="input_required",
            message="Book Rome?",
            metadata={"value": {"message": "Book Rome?", "city": "Rome"}},
        )
        assert await thread.resume(yes(raised, {"sure": True})) == [
            "CR c1 \"booked Rome: {'sure': True}\"",
            'CR c2 "sunny in Rome"',
            "TS m1",
            'TC m1 "Done."',
            "TE m1",
            "MS",
            "RF success",
        ]
    assert model.saw[1] == [
        "user: go",
        "ai: c1 book {'city': 'Rome'} c2 get_weather {'city': 'Rome'}",
        "tool c1: booked Rome: {'sure': True}",
        "tool c2: sunny in Rome",
    ]


async def test_where_each_call_is_a_task_of_its_own_the_interrupt_names_its_call() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME), call("c2", "get_weather", ROME, index=1)), says("Done."))
    graph = react_agent(model, book, get_weather, checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        first = await thread.say("go")
        assert first[-3:] == ['CR c2 "sunny in Rome"', "MS", "RF asks input_required"]
        (raised,) = thread.interrupts
        assert raised.tool_call_id == "c1"
        assert (await thread.resume(yes(raised, 1)))[0] == 'CR c1 "booked Rome: 1"'
    assert model.saw[1][2:] == ["tool c1: booked Rome: 1", "tool c2: sunny in Rome"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Sure?", {"reason": "input_required", "message": "Sure?"}),
        ({"question": "Sure?"}, {"reason": "input_required", "message": "Sure?"}),
        (
            {"reason": "confirmation", "description": "Pay?", "responseSchema": {"type": "boolean"}},
            {"reason": "confirmation", "message": "Pay?", "response_schema": {"type": "boolean"}},
        ),
        ({"tool_call_id": "c9", "reason": "tool_call"}, {"reason": "tool_call", "tool_call_id": "c9"}),
        (["a", 1], {"reason": "input_required"}),
        (None, {"reason": "input_required"}),
    ],
    ids=repr,
)
async def test_a_graphs_interrupt_is_the_message_a_person_reads(value: Any, expected: dict[str, Any]) -> None:
    async with langgraph(asking(value)) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
    assert raised == e.Interrupt(id=raised.id, metadata={"value": value}, **expected)


@requires("langgraph", "1.2.15", "an interrupt has a response schema")
async def test_an_interrupt_has_the_schema_of_its_answer_and_another_kind_of_answer_leaves_it_open() -> None:
    class Decision(BaseModel):
        approved: bool

    def node(state: MessagesState) -> Any:
        return {"messages": [AIMessage(str(interrupt("Sure?", response_schema=Decision)))]}

    graph = (
        StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    )
    async with langgraph(graph) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        assert (raised.response_schema or {})["required"] == ["approved"]
        await thread.resume(yes(raised, "maybe"))
        assert thread.error == "invalid_answer"
        await thread.resume(yes(raised, {"approved": True}))
    assert thread.text() == "approved=True"


@pytest.mark.parametrize("payload", [False, 0, "", [], {}, None], ids=repr)
async def test_a_falsy_answer_is_an_answer(payload: Any) -> None:
    async with langgraph(asking("q")) as thread:
        await thread.say("go")
        await thread.resume(yes(thread.interrupts[0], payload))
    assert (thread.text(), thread.end.outcome) == (f"q={payload!r}", e.Success())


async def test_the_graph_learns_that_an_interrupt_was_cancelled() -> None:
    async with langgraph(asking("q")) as thread:
        await thread.say("go")
        await thread.resume(no(thread.interrupts[0]))
    assert thread.text() == "q={'cancelled': True}"


async def test_several_interrupts_at_once_are_answered_together_each_by_its_id() -> None:
    async with langgraph(asking("one", "two")) as thread:
        assert (await thread.say("go"))[-1] == "RF asks input_required input_required"
        one, two = sorted(thread.interrupts, key=lambda raised: raised.message or "")
        with pytest.raises(PendingInterrupts):
            await thread.say("hello?")
        with pytest.raises(PendingInterrupts):
            await thread.resume(yes(one, 1))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(e.ResumeEntry(interrupt_id="wrong", status="resolved"))
        await thread.resume(yes(two, 2), yes(one, 1))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(two, 2), yes(one, 1))
    deltas = [event.delta for event in thread.events if isinstance(event, e.TextMessageContent)]
    assert sorted(deltas) == ["one=1", "two=2"]


@requires("langgraph", "1.2.20", "a node that failed on an answer gets the next one")
async def test_a_node_may_ask_again_and_an_old_answer_does_not_answer_it() -> None:
    def node(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{interrupt('one')} {interrupt('two')}")]}

    graph = (
        StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    )
    async with langgraph(graph) as thread:
        await thread.say("go")
        (first,) = thread.interrupts
        assert await thread.resume(yes(first, "a")) == ["MS", "RF asks input_required"]
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(first, "a"))
        await thread.resume(yes(thread.interrupts[0], "b"))
    assert thread.text() == "a b"


async def test_an_answer_finds_its_interrupt_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("Done."))
    for turn in range(2):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            graph = agent_graph(model, book, checkpointer=saver)
            async with langgraph(graph, store=tmp_path / "ledger.db") as thread:
                if turn == 0:
                    await thread.say("go")
                    (raised,) = thread.interrupts
                else:
                    assert (await thread.resume(yes(raised, "yes")))[0] == "CR c1 \"booked Rome: 'yes'\""
    assert model.saw[1] == ["user: go", "ai: c1 book {'city': 'Rome'}", "tool c1: booked Rome: 'yes'"]


async def test_an_expired_interrupt_can_only_be_cancelled() -> None:
    async with langgraph(asking("q"), LangGraphConfig(interrupt_timeout=0)) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(raised, 1))
        assert (await thread.resume(no(raised)))[-1] == "RF success"


async def test_a_new_message_after_an_expired_interrupt_abandons_the_call() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("ok"))
    graph = agent_graph(model, book, checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(interrupt_timeout=0)) as thread:
        await thread.say("go")
        assert (await thread.say("forget it"))[-1] == "RF success"
    assert model.saw[1] == [
        "user: go",
        "ai: c1 book {'city': 'Rome'}",
        "tool c1: This call was cancelled: it was never answered. error",
        "user: forget it",
    ]


async def test_a_message_sent_with_an_answer_comes_after_it() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("Booked."), says("Hurrying."))
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        await thread.say("but hurry", resume=[yes(thread.interrupts[0], 1)])
    assert thread.text() == "Booked.Hurrying."
    assert model.saw[2][2:] == ["tool c1: booked Rome: 1", "ai: Booked.", "user: but hurry"]


async def test_an_interrupt_without_a_checkpointer_says_what_is_missing() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)))
    async with langgraph(agent_graph(model, book)) as thread:
        await thread.say("go")
    assert thread.error == "checkpointer_needed"


async def test_an_interrupt_in_a_subgraph_suspends_its_subagent() -> None:
    inner = StateGraph(MessagesState)
    inner.add_node("ask", lambda state: {"messages": [AIMessage(f"said {interrupt('inside?')}")]})
    inner.add_edge(START, "ask")
    outer = StateGraph(MessagesState).add_node("helper", inner.compile()).add_edge(START, "helper")
    async with langgraph(outer.compile(checkpointer=InMemorySaver())) as thread:
        assert await thread.say("go") == ["SUB s1 helper", "END SUB s1 suspended", "MS", "RF asks input_required"]
        (raised,) = thread.interrupts
        begun = next(event for event in thread.events if isinstance(event, e.SubagentStarted))
        assert raised.subagent_run_id == begun.subagent_run_id
        assert await thread.resume(yes(raised, "yes")) == [
            "SUB s1 helper",
            "TS m1 @s1",
            'TC m1 "said yes" @s1',
            "TE m1 @s1",
            "END SUB s1",
            "MS",
            "RF success",
        ]


def publishing() -> Any:
    """A graph that stops before it publishes."""
    graph = StateGraph(MessagesState)
    graph.add_node("draft", lambda state: {"messages": [AIMessage("draft")]})
    graph.add_node("publish", lambda state: {"messages": [AIMessage("published")]})
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "publish")
    return graph.compile(checkpointer=InMemorySaver(), interrupt_before=["publish"])


async def test_a_breakpoint_raises_a_confirmation() -> None:
    async with langgraph(publishing()) as thread:
        assert (await thread.say("go"))[-1] == "RF asks confirmation"
        (raised,) = thread.interrupts
        assert (raised.message, raised.metadata) == ("Continue with publish?", {"next": ["publish"]})
        await thread.resume(yes(raised, True))
        assert (thread.text(), steps(thread.events)) == ("published", ["+publish", "-publish"])
        await thread.say("again")
        assert (await thread.resume(no(thread.interrupts[0]))) == ["MS", "RF success"]


@pytest.mark.parametrize("answer", [False, {"approved": False}, {"approved": "false"}])
async def test_a_declined_breakpoint_does_not_continue_the_graph(answer: Any) -> None:
    async with langgraph(publishing()) as thread:
        await thread.say("go")
        assert await thread.resume(yes(thread.interrupts[0], answer)) == ["MS", "RF success"]


@pytest.mark.parametrize("answer", [None, True, {}, {"approved": True}, "go on"])
async def test_an_approval_at_a_breakpoint_continues_the_graph(answer: Any) -> None:
    async with langgraph(publishing()) as thread:
        await thread.say("go")
        await thread.resume(yes(thread.interrupts[0], answer))
        assert thread.text() == "published"


async def test_an_interrupt_and_a_frontend_call_in_one_turn_are_answered_one_after_the_other() -> None:
    model = ScriptedModel(
        calls(call("c1", "book", ROME), call("f1", "change_background", "{}", index=1)), says("Done.")
    )
    graph = agent_graph(model, book, checkpointer=InMemorySaver())
    async with langgraph(graph, tools=[TOOL]) as thread:
        assert (await thread.say("go"))[-1] == "RF asks input_required"
        assert await thread.resume(yes(thread.interrupts[0], 1)) == ['CR c1 "booked Rome: 1"', "MS", "RF waits for f1"]
        assert len(model.saw) == 1
        assert (await thread.answer(f1="red"))[-1] == "RF success"
    assert model.saw[1][2:] == ["tool c1: booked Rome: 1", "tool f1: red"]


async def test_an_interrupt_that_is_no_json_is_sent_in_the_nearest_form() -> None:
    async with langgraph(asking({"message": "Sure?", "on": date(2026, 1, 2), "of": {"a"}})) as thread:
        await thread.say("go")
    assert thread.interrupts[0].metadata == {"value": {"message": "Sure?", "on": "2026-01-02", "of": ["a"]}}
