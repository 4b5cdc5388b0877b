"""A thread goes on whatever went wrong in it: questions that were lost, answers and state that the graph could not take."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import anyio.lowlevel
import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from pydantic import BaseModel

from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, langgraph, no, yes
from tests.versions.marks import requires
from tests.world import KEY, user

ROME = '{"city": "Rome"}'


@tool
def book(city: str) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {interrupt('Sure?')}"


def lapsed(events: list[e.Event]) -> list[Any]:
    return [event.value for event in events if isinstance(event, e.Custom) and event.name == "ambient:interrupt_lapsed"]


def about_a_call(question: str) -> Any:
    """A question that stays open until its call has a result or the run succeeds, whatever else happens."""
    return {"message": question, "tool_call_id": "c9"}


def strict(*, nested: bool = False, checkpointer: Any = None) -> Any:
    """A graph that asks twice in one node, and fails on an answer without `ok`. For "hello" it raises no interrupt."""

    def node(state: MessagesState) -> Any:
        if state["messages"][-1].content == "hello":
            return {"messages": [AIMessage("hello")]}
        one = interrupt(about_a_call("one"))["ok"]
        two = interrupt(about_a_call("two"))["ok"]
        return {"messages": [AIMessage(f"{one} {two}")]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    if nested:
        graph = StateGraph(MessagesState).add_node("inner", graph.compile()).add_edge(START, "inner")
    return graph.compile(checkpointer=checkpointer or InMemorySaver())


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["answered", "cancelled"])
async def test_an_interrupt_lost_with_the_checkpoints_lapses_and_the_next_message_is_answered(
    tmp_path: Path, is_cancelled: bool
) -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("ok"))
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver()), store=tmp_path / "l.db") as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver()), store=tmp_path / "l.db") as thread:
        assert (await thread.resume(no(raised) if is_cancelled else yes(raised, 1)))[-1] == "RF success"
        assert lapsed(thread.events) == ([] if is_cancelled else [{"interruptIds": [raised.id]}])
        await thread.run(user("u2", "forget it"))
        assert thread.text() == "ok"
    assert model.saw[1] == [
        "user: go",
        "ai: c1 book {'city': 'Rome'}",
        "tool c1: This call was cancelled: it was never answered. error",
        "user: forget it",
    ]


async def test_a_message_sent_with_the_answer_to_a_lost_interrupt_is_delivered(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("ok"))
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver()), store=tmp_path / "l.db") as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver()), store=tmp_path / "l.db") as thread:
        await thread.run(user("u2", "and now?"), resume=[yes(raised, 1)])
        assert (lapsed(thread.events), thread.text()) == ([{"interruptIds": [raised.id]}], "ok")
    assert model.saw[1][-1] == "user: and now?"


@pytest.mark.parametrize("nested", [False, True], ids=["graph", "subgraph"])
@requires("langgraph", "1.2.20", "a node that failed on an answer gets the next one")
async def test_after_an_answer_the_node_failed_on_the_next_answer_replaces_it(nested: bool) -> None:
    async with langgraph(strict(nested=nested)) as thread:
        await thread.say("go")
        (one,) = thread.interrupts
        for wrong in ({}, {"no": 1}):
            await thread.resume(yes(one, wrong))
            assert thread.error == "langgraph_error"
        assert (await thread.resume(yes(one, {"ok": "a"})))[-1] == "RF asks input_required"
        (two,) = thread.interrupts
        assert two.message == "two"
        await thread.resume(yes(two, {}))
        assert thread.error == "langgraph_error"
        await thread.resume(yes(two, {"ok": "b"}))
        assert thread.text() == "a b"


async def test_a_wrong_answer_is_replaced_after_a_restart(tmp_path: Path) -> None:
    for turn in range(2):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            async with langgraph(strict(checkpointer=saver), store=tmp_path / "ledger.db") as thread:
                if turn == 0:
                    await thread.say("go")
                    (raised,) = thread.interrupts
                    await thread.resume(yes(raised, {}))
                else:
                    assert (await thread.resume(yes(raised, {"ok": 1})))[-1] == "RF asks input_required"


async def test_of_two_answers_the_one_that_was_taken_is_not_taken_twice() -> None:
    done: list[str] = []
    is_done = anyio.Event()

    async def good(state: MessagesState) -> Any:
        done.append(interrupt(about_a_call("good")))
        is_done.set()
        return {"messages": [AIMessage("good")]}

    async def bad(state: MessagesState) -> Any:
        answer = interrupt(about_a_call("bad"))
        await is_done.wait()
        for _ in range(9):  # The other node's end is noted.
            await anyio.lowlevel.checkpoint()
        return {"messages": [AIMessage(answer["ok"])]}

    graph = StateGraph(MessagesState).add_node("good", good).add_node("bad", bad)
    graph = graph.add_edge(START, "good").add_edge(START, "bad")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        raised = {one.message: one for one in thread.interrupts}
        await thread.resume(yes(raised["good"], "x"), yes(raised["bad"], {}))
        assert thread.error == "langgraph_error"
        assert (await thread.resume(yes(raised["good"], "y"), yes(raised["bad"], {"ok": "fine"})))[-1] == "RF success"
    assert done == ["x"]


@pytest.mark.parametrize("nested", [False, True], ids=["graph", "subgraph"])
async def test_a_cancel_that_the_graph_fails_on_drops_the_interrupt(nested: bool) -> None:
    async with langgraph(strict(nested=nested)) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        await thread.resume(yes(raised, {}))
        assert (await thread.resume(no(raised)))[-1] == "RF success"
        await thread.say("hello")
        assert thread.text() == "hello"
        await thread.say("go")
        (raised,) = thread.interrupts
        assert (await thread.resume(yes(raised, {"ok": 1})))[-1] == "RF asks input_required"


@requires("langgraph", "1.2.15", "an interrupt has a response schema")
async def test_an_interrupt_with_a_typed_answer_can_be_cancelled() -> None:
    class Decision(BaseModel):
        approved: bool

    def node(state: MessagesState) -> Any:
        if state["messages"][-1].content == "hello":
            return {"messages": [AIMessage("hello")]}
        return {"messages": [AIMessage(str(interrupt("Sure?", response_schema=Decision)))]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        assert (await thread.resume(no(thread.interrupts[0])))[-1] == "RF success"
        await thread.say("hello")
        assert thread.text() == "hello"


class Listed(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    n: Annotated[list[int], operator.add]
    tags: Annotated[set[str], operator.or_]


def listing() -> Any:
    def node(state: Listed) -> Any:
        return {"n": [len(state["messages"])], "tags": {"t"}, "messages": [AIMessage(f"{state['n']}")]}

    graph = StateGraph(Listed).add_node("node", node).add_edge(START, "node")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("wrong", [7, {"a": 1}, {"__overwrite__": 7}, "text", None], ids=repr)
@pytest.mark.parametrize("turn", [0, 1], ids=["first run", "later run"])
async def test_state_of_the_wrong_type_is_refused_and_later_runs_work(wrong: Any, turn: int) -> None:
    async with langgraph(listing()) as thread:
        for _ in range(turn):
            await thread.say("before")
        await thread.say("go", state={"n": wrong})
        assert thread.error == "invalid_state"
        view = await thread.runner.view_thread(KEY)
        assert view.state.value.get("n", []) == [1] * turn
        assert (await thread.say("on"))[-1] == "RF success"
        assert thread.text() == str([1] * turn)
        await thread.say("set", state={"n": [5]})
        assert thread.text() == "[5]"


async def test_a_list_a_client_sets_becomes_the_set_that_the_graph_keeps() -> None:
    async with langgraph(listing()) as thread:
        assert (await thread.say("go", state={"tags": ["a"]}))[-1] == "RF success"
        assert sorted((await thread.runner.view_thread(KEY)).state.value["tags"]) == ["a", "t"]


async def test_state_that_the_graph_fails_on_before_it_begins_is_taken_back() -> None:
    class Typed(BaseModel):
        messages: Annotated[list[Any], add_messages] = []
        count: int = 0

    def node(state: Any) -> Any:
        return {"messages": [AIMessage("done")]}

    typed = StateGraph(Typed).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(typed) as thread:
        await thread.say("go", state={"count": "many"})
        assert thread.error == "langgraph_error"
        assert (await thread.say("on"))[-1] == "RF success"
        await thread.say("go", state={"count": "many"})
        assert thread.error == "langgraph_error"
        assert (await thread.say("on", state={"count": 2}))[-1] == "RF success"
