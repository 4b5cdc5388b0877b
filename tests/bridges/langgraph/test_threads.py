"""Runs of one thread after the other: what the model sees again, with a checkpointer and without, after restarts, rewinds and stops."""

from __future__ import annotations

import dataclasses
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langchain_core.messages import RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from ambient_runner.bridges.langgraph.config import LangGraphConfig
from ambient_runner.bridges.langgraph.graph import qualified_thread_id
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import events as e
from ambient_runner.runs.event_reader import follow_run
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says, words
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request, user

ROME = '{"city": "Rome"}'
PLACE = {"configurable": {"thread_id": qualified_thread_id(KEY)}}


async def stored(graph: Any, place: Any = PLACE) -> list[str]:
    """The conversation in the graph's own state."""
    return [words(message) for message in (await graph.aget_state(place)).values["messages"]]


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])
async def test_the_model_sees_the_conversation_once_with_a_checkpointer_and_without(saver: Any) -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("Sun."), says("Yes."))
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver())) as thread:
        await thread.say("weather?")
        await thread.say("sure?")
    called = ["user: weather?", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome"]
    assert model.saw == [called[:1], called, [*called, "ai: Sun.", "user: sure?"]]


async def test_the_ids_that_were_streamed_are_those_in_the_graphs_state() -> None:
    graph = agent_graph(ScriptedModel(says("one"), says("two")), checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("a")
        first = [one.message_id for one in thread.events if isinstance(one, e.TextMessageStart)]
        await thread.say("b")
        second = [one.message_id for one in thread.events if isinstance(one, e.TextMessageStart)]
    messages = (await graph.aget_state(PLACE)).values["messages"]
    assert [message.id for message in messages] == ["u1", *first, "u2", *second]


async def test_after_a_restart_a_stored_graph_continues_where_it_was(tmp_path: Path) -> None:
    model = ScriptedModel(says("one"), says("two"))
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        async with langgraph(agent_graph(model, checkpointer=saver), store=tmp_path / "ledger.db") as thread:
            await thread.say("a")
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        graph = agent_graph(model, checkpointer=saver)
        async with langgraph(graph, store=tmp_path / "ledger.db") as thread:
            await thread.run(user("u2", "b"))
        assert await stored(graph) == ["user: a", "ai: one", "user: b", "ai: two"]
    assert model.saw == [["user: a"], ["user: a", "ai: one", "user: b"]]


async def test_after_a_restart_that_lost_the_checkpoints_the_model_sees_the_whole_conversation_once(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("one"), says("two"), says("three"))
    graphs = [agent_graph(model, get_weather, checkpointer=InMemorySaver()) for _ in range(2)]
    async with langgraph(graphs[0], store=tmp_path / "ledger.db") as thread:
        await thread.say("a")
    async with langgraph(graphs[1], store=tmp_path / "ledger.db") as thread:
        await thread.run(user("u2", "b"))
        await thread.run(user("u3", "c"))
    before = ["user: a", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome", "ai: one"]
    assert model.saw[2:] == [[*before, "user: b"], [*before, "user: b", "ai: two", "user: c"]]
    assert await stored(graphs[1]) == [*before, "user: b", "ai: two", "user: c", "ai: three"]


async def test_a_rewind_takes_the_graph_back_to_where_the_message_was_sent() -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"), says("new two"), says("new three"))
    graph = agent_graph(model, checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        for text in "abc":
            await thread.say(text)
        await thread.run(user("u1", "a"), user("u2", "b"))
        assert thread.text() == "new two"
        await thread.say("d")
    assert model.saw[3:] == [
        ["user: a", "ai: one", "user: b"],
        ["user: a", "ai: one", "user: b", "ai: new two", "user: d"],
    ]
    assert await stored(graph) == ["user: a", "ai: one", "user: b", "ai: new two", "user: d", "ai: new three"]


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])
async def test_after_a_fork_the_model_sees_what_was_before_the_message_and_the_new_one(saver: Any) -> None:
    model = ScriptedModel(
        calls(call("c1", "get_weather", ROME)), *[says(text) for text in ("Sun.", "Yes.", "No.", "So.")]
    )
    async with langgraph(agent_graph(model, get_weather, checkpointer=saver())) as thread:
        await thread.say("weather?")
        await thread.say("sure?")
        fork = dataclasses.replace(thread, name="fork")
        await fork.run(user("n1", "really?"), fork=ForkOrigin(thread_id="t", message_id="u2"))
        await fork.run(user("n2", "and now?"))
    copied = ["user: weather?", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome", "ai: Sun."]
    assert model.saw[3:] == [[*copied, "user: really?"], [*copied, "user: really?", "ai: No.", "user: and now?"]]


async def test_a_rewind_to_the_beginning_clears_the_graphs_conversation() -> None:
    model = ScriptedModel(says("one"), says("two"), says("again"))
    graph = agent_graph(model, checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("a")
        await thread.say("b")
        await thread.run(user("u1", "a"))
    assert model.saw[2] == ["user: a"]
    assert await stored(graph) == ["user: a", "ai: again"]


async def test_a_stopped_run_leaves_the_graph_usable_and_the_model_sees_its_messages() -> None:
    hang = anyio.Event()
    model = ScriptedModel([*says("half a "), hang], says("whole"), says("end"))
    graph = agent_graph(model, checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        started = await thread.runner.start(request(user("u1", "a")))
        with unless_hung():
            async with aclosing(follow_run(thread.runner.ledger, started)) as events:
                async for event in events:
                    if isinstance(event, e.TextMessageContent):
                        break
            await thread.runner.stop(KEY)
            stopped = await events_of(thread.runner, started)
        assert isinstance(stopped[-1], e.RunFinished)
        assert stopped[-1].outcome == e.Cancelled()
        await thread.run(user("u2", "b"))
        await thread.run(user("u3", "c"))
    before = ["user: a", "ai: half a ", "user: b"]
    assert model.saw[1:] == [before, [*before, "ai: whole", "user: c"]]
    assert model.closed == 3


async def test_a_failed_run_can_be_retried_and_its_message_is_sent_once() -> None:
    model = ScriptedModel([RuntimeError("no")], says("now"))
    async with langgraph(agent_graph(model, checkpointer=InMemorySaver())) as thread:
        assert (await thread.say("a"), thread.error) == ([], "langgraph_error")
        await thread.run(user("u1", "a"))
    assert model.saw == [["user: a"], ["user: a"]]


async def test_calls_that_a_stop_left_without_a_result_are_answered_for_the_model() -> None:
    entered, hang = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Takes long."""
        entered.set()
        await hang.wait()
        return "never"

    model = ScriptedModel(calls(call("c1", "slow")), says("ok"))
    async with langgraph(agent_graph(model, slow, checkpointer=InMemorySaver())) as thread:
        started = await thread.runner.start(request(user("u1", "a")))
        with unless_hung():
            await entered.wait()
            await thread.runner.stop(KEY)
            await events_of(thread.runner, started)
        await thread.run(user("u2", "b"))
    assert model.saw[1] == [
        "user: a",
        "ai: c1 slow {}",
        "tool c1: This call was cancelled: it was never answered. error",
        "user: b",
    ]


def test_two_owners_with_the_same_thread_id_have_two_conversations() -> None:
    assert qualified_thread_id(ThreadKey("default", "a/b", "t")) != qualified_thread_id(
        ThreadKey("default/a", "b", "t")
    )
    assert qualified_thread_id(ThreadKey("default", "local", "x/y")) != qualified_thread_id(
        ThreadKey("default", "local/x", "y")
    )


async def test_a_factory_is_called_once_for_each_thread_and_gets_the_platforms_context() -> None:
    contexts: list[Any] = []
    model = ScriptedModel(says("one"), says("two"), says("three"))

    async def make(ctx: Any) -> Any:
        contexts.append(ctx.session_id)
        return agent_graph(model)

    async with langgraph(make) as thread:
        await thread.say("a")
        await thread.say("b")
        thread.name = "other"
        await thread.run(user("x1", "c"))
    assert contexts == ["t", "other"]
    assert model.saw[1:] == [["user: a", "ai: one", "user: b"], ["user: c"]]


async def test_messages_without_a_reducer_are_sent_whole() -> None:
    class State(TypedDict):
        messages: list[Any]

    model = ScriptedModel(says("one"), says("two"))

    async def node(state: State) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("a")
        await thread.say("b")
    assert model.saw[1] == ["user: a", "ai: one", "user: b"]


async def test_a_graph_that_shortens_its_conversation_gets_only_new_messages() -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))

    async def node(state: MessagesState) -> Any:
        message = await model.ainvoke(state["messages"])
        old = state["messages"][:-1]
        return {"messages": [*(RemoveMessage(id=message.id or "") for message in old), message]}

    graph = (
        StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    )
    async with langgraph(graph) as thread:
        for text in "abc":
            await thread.say(text)
    assert model.saw == [["user: a"], ["user: a", "ai: one", "user: b"], ["user: b", "ai: two", "user: c"]]


async def test_erasing_a_thread_erases_its_checkpoints() -> None:
    graph = agent_graph(ScriptedModel(says("one")), checkpointer=InMemorySaver())
    async with langgraph(graph) as thread:
        await thread.say("a")
        assert (await graph.aget_state(PLACE)).values != {}
        await thread.runner.erase_thread(KEY)
        assert (await graph.aget_state(PLACE)).values == {}


async def test_a_client_may_continue_from_an_earlier_checkpoint_where_that_is_allowed() -> None:
    model = ScriptedModel(says("one"), says("two"), says("other two"))
    graph = agent_graph(model, checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(time_travel=True)) as thread:
        await thread.say("a")
        checkpoint = (thread.end.metadata or {})["checkpointId"]
        await thread.say("b")
        await thread.say("c", forwarded_props={"checkpointId": checkpoint})
        assert model.saw[2] == ["user: a", "ai: one", "user: c"]
        await thread.say("d", forwarded_props={"checkpointId": "nope"})
    assert thread.error == "unknown_checkpoint"
    assert len(model.saw) == 3


async def test_a_client_goes_nowhere_where_that_is_not_allowed() -> None:
    model = ScriptedModel(says("one"), says("two"))
    async with langgraph(agent_graph(model, checkpointer=InMemorySaver())) as thread:
        await thread.say("a")
        props = {"checkpointId": "nope", "command": {"goto": "tools", "update": {"messages": []}}}
        assert (await thread.say("b", forwarded_props=props))[-1] == "RF success"
    assert model.saw[1] == ["user: a", "ai: one", "user: b"]


async def test_an_abandoned_frontend_call_gets_a_result_for_the_model() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", "{}")), says("ok"))
    async with langgraph(agent_graph(model, checkpointer=InMemorySaver()), tools=[TOOL]) as thread:
        assert (await thread.say("a"))[-1] == "RF waits for f1"
        await thread.say("never mind")
    assert model.saw[1] == [
        "user: a",
        "ai: f1 change_background {}",
        "tool f1: This call was cancelled: it was never answered. error",
        "user: never mind",
    ]


async def test_the_conversation_may_stand_under_another_key() -> None:
    class State(TypedDict):
        chat: Annotated[list[Any], add_messages]

    model = ScriptedModel(says("one"), says("two"))

    async def node(state: State) -> Any:
        return {"chat": [await model.ainvoke(state["chat"])]}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())
    async with langgraph(graph, LangGraphConfig(messages_key="chat")) as thread:
        await thread.say("a")
        assert not any(isinstance(event, e.StateDelta | e.StateSnapshot) for event in thread.events)
        await thread.say("b")
    assert model.saw[1] == ["user: a", "ai: one", "user: b"]


async def test_a_client_that_keeps_the_history_itself_decides_what_the_model_sees() -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))
    graph = agent_graph(model, checkpointer=InMemorySaver())
    settings = dataclasses.replace(SETTINGS, history="client")
    async with langgraph(graph, settings=settings) as thread:
        await thread.run(user("u1", "a"))
        answer = next(event.message_id for event in thread.events if isinstance(event, e.TextMessageStart))
        message = e.AssistantMessage(id=answer, content="one")
        await thread.run(user("u1", "a"), message, user("u2", "b"))
        await thread.run(user("u1", "a"), e.AssistantMessage(id="other", content="edited"), user("u3", "c"))
    assert model.saw[1:] == [["user: a", "ai: one", "user: b"], ["user: a", "ai: edited", "user: c"]]


async def test_a_message_that_comes_with_a_command_reaches_the_graph() -> None:
    """Clients had it in the thread, and no model ever got it."""
    model = ScriptedModel(says("One."), says("Two."), says("Three."))

    async def answer(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    compiled = graph.compile(checkpointer=InMemorySaver())
    async with langgraph(compiled, config=LangGraphConfig(time_travel=True)) as thread:
        await thread.say("a")
        await thread.say("b", forwarded_props={"command": {"goto": "answer"}})
        await thread.say("c")
    assert model.saw[-1][-3:] == ["user: b", "ai: Two.", "user: c"]
