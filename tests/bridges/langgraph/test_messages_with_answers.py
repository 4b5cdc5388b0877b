"""Messages sent with an answer: they are delivered after it, once, whatever the answer leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says, words
from tests.bridges.langgraph.test_recovery import about_a_call
from tests.bridges.langgraph.test_threads import stored
from tests.bridges.langgraph.world import agent_graph, langgraph, no, yes
from tests.versions.marks import requires
from tests.world import user

ROME = '{"city": "Rome"}'


def asking(*questions: Any, checkpointer: Any = None) -> Any:
    """A graph that asks all questions after "go", one after the other, fails on an answer without `ok`, and repeats anything else."""

    def node(state: MessagesState) -> Any:
        text = state["messages"][-1].content
        if text != "go":
            return {"messages": [AIMessage(f"heard {text}")]}
        return {"messages": [AIMessage(" ".join(interrupt(question)["ok"] for question in questions))]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    return graph.compile(checkpointer=checkpointer or InMemorySaver())


def ok(text: str) -> Any:
    return {"ok": text}


async def test_trying_the_message_again_gives_the_answer_again() -> None:
    graph = asking("one", "two")
    async with langgraph(graph) as thread:
        await thread.say("go")
        await thread.resume(yes(thread.interrupts[0], ok("a")))
        first = await thread.say("beside", resume=[yes(thread.interrupts[0], ok("b"))])
        assert first[1:5:3] == ['TC m1 "a b"', 'TC m2 "heard beside"']
        assert await thread.run(user("u2", "beside")) == first
        assert await stored(graph) == ["user: go", "ai: a b", "user: beside", "ai: heard beside"]


async def test_a_result_that_the_thread_has_is_not_requested_again() -> None:
    done: list[str] = []

    @tool
    def book(city: str) -> str:
        """Books a trip after asking."""
        done.append(interrupt("Sure?"))
        return f"booked {city}"

    model = ScriptedModel(calls(call("c1", "book", ROME)), says("Booked."), says("Hurrying."), says("Hurrying again."))
    async with langgraph(agent_graph(model, book, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        await thread.say("but hurry", resume=[yes(thread.interrupts[0], "yes")])
        await thread.run(user("u2", "but hurry"))
        assert thread.text() == "Hurrying again."
    assert model.saw[3][2:] == ["tool c1: booked Rome", "user: but hurry"]
    assert done == ["yes"]


async def test_a_retried_message_that_abandoned_an_interrupt_does_so_again() -> None:
    def node(state: MessagesState) -> Any:
        conversation = [words(message) for message in state["messages"]]
        return {
            "messages": [
                AIMessage(
                    str(
                        interrupt({"message": "Sure?", "expires_at": "2020-01-01"})
                        if conversation == ["user: go"]
                        else "ok"
                    )
                )
            ]
        }

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        first = await thread.say("never mind")
        assert await thread.run(user("u2", "never mind")) == first


async def test_a_message_is_delivered_when_the_graph_has_no_more_interrupts(tmp_path: Path) -> None:
    for turn in range(3):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
            graph = asking("one", "two", checkpointer=saver)
            async with langgraph(graph, store=tmp_path / "ledger.db") as thread:
                if turn == 0:
                    await thread.say("go")
                    (raised,) = thread.interrupts
                elif turn == 1:
                    stream = await thread.run(user("u2", "beside"), resume=[yes(raised, ok("a"))])
                    assert stream == ["MS", "RF asks input_required"]
                    (raised,) = thread.interrupts
                else:
                    await thread.resume(yes(raised, ok("b")))
                    assert thread.text() == "a bheard beside"
            conversation = await stored(graph) if turn == 2 else []
    assert conversation == ["user: go", "ai: a b", "user: beside", "ai: heard beside"]


async def test_a_message_sent_with_an_answer_the_graph_failed_on_is_delivered_after_the_next_answer() -> None:
    graph = asking("one")
    async with langgraph(graph) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        await thread.say("beside", resume=[yes(raised, {})])
        assert thread.error == "langgraph_error"
        await thread.say("and this", resume=[yes(raised, ok("a"))])
        assert await stored(graph) == ["user: go", "ai: a", "user: beside", "user: and this", "ai: heard and this"]


@requires("langgraph", "1.2.15", "an accepted answer is delivered once")
async def test_of_two_answers_the_accepted_one_is_kept_and_the_message_is_delivered_after_the_other() -> None:
    taken: list[str] = []
    is_taken = anyio.Event()

    async def good(state: MessagesState) -> Any:
        if state["messages"][-1].content == "go":
            taken.append(interrupt(about_a_call("good")))
            is_taken.set()
        return {}

    async def bad(state: MessagesState) -> Any:
        text = state["messages"][-1].content
        answer = interrupt(about_a_call("bad")) if text == "go" else ok(f"heard {text}")
        await is_taken.wait()
        for _ in range(9):  # The other node's end is noted.
            await anyio.lowlevel.checkpoint()
        return {"messages": [AIMessage(answer["ok"])]}

    graph = StateGraph(MessagesState).add_node("good", good).add_node("bad", bad)
    compiled = graph.add_edge(START, "good").add_edge(START, "bad").compile(checkpointer=InMemorySaver())
    async with langgraph(compiled) as thread:
        await thread.say("go")
        raised = {one.message: one for one in thread.interrupts}
        await thread.say("beside", resume=[yes(raised["good"], "x"), yes(raised["bad"], {})])
        assert thread.error == "langgraph_error"
        await thread.resume(yes(raised["good"], "y"), yes(raised["bad"], ok("fine")))
        assert await stored(compiled) == ["user: go", "ai: fine", "user: beside", "ai: heard beside"]
    assert taken == ["x"]


async def test_a_message_sent_with_a_cancel_that_the_graph_fails_on_is_answered() -> None:
    graph = asking("one")
    async with langgraph(graph) as thread:
        await thread.say("go")
        assert (await thread.say("never mind", resume=[no(thread.interrupts[0])]))[-1] == "RF success"
        assert thread.text() == "heard never mind"
        await thread.say("on")
        text = ["user: never mind", "ai: heard never mind", "user: on", "ai: heard on"]
        assert await stored(graph) == ["user: go", *text]


@pytest.mark.parametrize("status", [yes, no])
async def test_an_undelivered_message_is_delivered_with_the_next_one_when_its_interrupt_is_lost(
    tmp_path: Path, status: Any
) -> None:
    async with langgraph(asking("one", "two"), store=tmp_path / "ledger.db") as thread:
        await thread.say("go")
        await thread.say("beside", resume=[yes(thread.interrupts[0], ok("a"))])
        (raised,) = thread.interrupts
    graph = asking("one", "two")
    async with langgraph(graph, store=tmp_path / "ledger.db") as thread:
        assert (await thread.resume(status(raised)))[-1] == "RF success"
        await thread.run(user("u3", "on"))
    assert await stored(graph) == ["user: go", "user: beside", "user: on", "ai: heard on"]
