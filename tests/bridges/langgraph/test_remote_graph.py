"""A graph on a LangGraph server: the SDK's own client, over a real socket, to a real graph."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.graph import StateSchema
from ambient_runner.bridges.langgraph.state_edits import find_edits
from ambient_runner.protocol import events as e
from ambient_runner.runs.event_reader import follow_run
from tests.bridges.langgraph.remote_server import serving
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says, text
from tests.bridges.langgraph.world import TOOL, Thread, agent_graph, get_weather, langgraph, summarize, yes
from tests.machine_speed import unless_hung
from tests.world import KEY, events_of, request, user

ROME = '{"city": "Rome"}'


@tool
def book(city: str) -> str:
    """Books a trip after asking."""
    return f"booked {city}: {interrupt({'message': 'Sure?'})}"


@asynccontextmanager
async def remote(graph: Any, *, has_output: bool = True, **options: Any) -> AsyncGenerator[Thread, None]:
    async with serving(graph, has_output=has_output) as url:
        async with langgraph(None, bridge=lambda: LangGraphBridge(url=url, graph_id="agent"), **options) as thread:
            yield thread


async def test_a_remote_graph_sends_the_same_events_as_a_local_one() -> None:
    turns = [calls(text("Look: "), call("c1", "get_weather", ROME[:6], ROME[6:])), says("Su", "n.", usage=(3, 2))]
    streams: list[Any] = []
    for where in (langgraph, remote):
        model = ScriptedModel(*turns)
        async with where(agent_graph(model, get_weather, checkpointer=InMemorySaver())) as thread:
            streams.append((await thread.say("weather?"), thread.end.usage, model.saw))
    assert streams[0] == streams[1]


async def test_a_remote_graph_keeps_the_conversation_and_a_rewind_takes_it_back() -> None:
    model = ScriptedModel(says("one"), says("two"), says("new two"))
    async with remote(agent_graph(model, checkpointer=InMemorySaver())) as thread:
        await thread.say("a")
        await thread.say("b")
        await thread.run(user("u1", "a"), user("u2", "b"))
    assert model.saw == [["user: a"], *[["user: a", "ai: one", "user: b"]] * 2]


async def test_a_remote_interrupt_is_answered() -> None:
    model = ScriptedModel(calls(call("c1", "book", ROME)), says("Done."))
    async with remote(agent_graph(model, book, checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        assert raised.message == "Sure?"
        assert (await thread.resume(yes(raised, "yes")))[0] == 'CR c1 "booked Rome: yes"'
    assert model.saw[1][-1] == "tool c1: booked Rome: yes"


async def test_tools_of_the_client_reach_a_remote_graph() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", "{}")), says("Red."))
    async with remote(agent_graph(model, checkpointer=InMemorySaver()), tools=[TOOL]) as thread:
        assert (await thread.say("red"))[-1] == "RF waits for f1"
        await thread.answer(f1="done")
    assert model.bound == ["change_background"]
    assert model.saw[1] == ["user: red", "ai: f1 change_background {}", "tool f1: done"]


async def test_a_subgraph_and_shared_state_come_from_afar() -> None:
    class State(MessagesState):
        colour: str

    inner = agent_graph(ScriptedModel(says("deep")))
    graph = StateGraph(State).add_node("helper", inner).add_node("paint", lambda state: {"colour": "red"})
    graph.add_edge(START, "helper").add_edge("helper", "paint")
    async with remote(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("go", state={"colour": "blue"})
        assert summarize(thread.seen) == [
            'SS {"colour": "blue"}',
            "SUB s1 helper",
            "TS m1 @s1",
            'TC m1 "deep" @s1',
            "TE m1 @s1",
            "END SUB s1",
            'SD [{"op": "replace", "path": "/colour", "value": "red"}]',
            "MS",
            "RF success",
        ]


async def test_a_stop_cuts_the_stream_and_the_next_run_continues() -> None:
    model = ScriptedModel([*says("half "), anyio.Event()], says("whole"))
    async with remote(agent_graph(model, checkpointer=InMemorySaver())) as thread:
        with unless_hung():
            started = await thread.runner.start(request(user("u1", "a")))
            async for event in follow_run(thread.runner.ledger, started):
                if isinstance(event, e.TextMessageContent):
                    await thread.runner.stop(KEY)
            assert (await events_of(thread.runner, started))[-1].outcome == e.Cancelled()  # type: ignore[union-attr]
        await thread.run(user("u2", "b"))
    assert model.saw[1] == ["user: a", "ai: half ", "user: b"]


@pytest.mark.parametrize(("own", "steps"), [(None, 100), (7, 7)])
async def test_the_limit_of_the_graph_over_there_counts(own: int | None, steps: int) -> None:
    rounds: list[int] = []

    def node(state: MessagesState) -> Any:
        rounds.append(1)
        return {"messages": []}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").add_edge("node", "node")
    compiled = graph.compile(checkpointer=InMemorySaver())
    async with remote(compiled if own is None else compiled.with_config(recursion_limit=own)) as thread:
        await thread.say("go")
    assert (thread.error is None, len(rounds)) == (False, steps)


async def test_a_failure_over_there_is_one_here() -> None:
    async with remote(agent_graph(ScriptedModel([RuntimeError("secret")]), checkpointer=InMemorySaver())) as thread:
        await thread.say("go")
    assert (thread.error, "secret" in repr(thread.events)) == ("langgraph_error", False)


async def test_a_server_that_is_not_there_or_wants_a_key_says_what_to_check() -> None:
    async with serving(agent_graph(ScriptedModel(says("hi")), checkpointer=InMemorySaver()), key="k") as url:
        for bridge, error in (
            (LangGraphBridge(url=url), "langgraph_unreachable"),
            (LangGraphBridge(url="http://127.0.0.1:9"), "langgraph_unreachable"),
            (LangGraphBridge(url=url, api_key="k"), None),
        ):
            async with langgraph(None, bridge=lambda bridge=bridge: bridge) as thread:
                await thread.say("go")
                assert thread.error == error


async def test_erasing_a_thread_erases_it_over_there() -> None:
    graph = agent_graph(ScriptedModel(says("one")), checkpointer=InMemorySaver())
    async with remote(graph) as thread:
        await thread.say("a")
        assert len(graph.checkpointer.storage) == 1
        await thread.runner.erase_thread(KEY)
        assert len(graph.checkpointer.storage) == 0


async def test_a_thread_unknown_to_the_other_server_is_erased_without_an_error() -> None:
    async with serving(agent_graph(ScriptedModel(), checkpointer=InMemorySaver())) as url:
        await LangGraphBridge(url=url).erase_thread(KEY)


async def test_a_remote_message_whose_chunks_have_several_ids_is_one_message() -> None:
    """A LangGraph server sends no id of the model call, and OpenAI's Responses API gives a message two ids."""
    turns = [[AIMessageChunk("", id=f"resp-{turn}"), *says("Su", f"n {turn}.")] for turn in range(3)]
    model = ScriptedModel(*turns)

    async def ask_twice(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"]) for _ in range(2)]}

    graph = StateGraph(MessagesState).add_node("ask", ask_twice).add_edge(START, "ask")
    async with remote(graph.compile(checkpointer=InMemorySaver())) as thread:
        assert [line for line in await thread.say("hi") if line.startswith("TC")] == [
            'TC resp-0 "Su"',
            'TC resp-0 "n 0."',
            'TC resp-1 "Su"',
            'TC resp-1 "n 1."',
        ]
        assert await thread.messages() == ["user: hi", "assistant: Sun 0.", "assistant: Sun 1."]


async def test_a_remote_graph_takes_a_message_back() -> None:
    model = ScriptedModel(says("The code is 1234."))

    def guard(state: MessagesState) -> Any:
        return {"messages": [AIMessage("[blocked]", id=state["messages"][-1].id)]}

    async def answer(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_node("guard", guard)
    compiled = graph.add_edge(START, "answer").add_edge("answer", "guard").compile(checkpointer=InMemorySaver())
    async with remote(compiled) as thread:
        await thread.say("hi")
        assert await thread.messages() == ["user: hi", "assistant: [blocked]"]


class Whole(MessagesState):
    plan: str
    notes: str


class Shown(MessagesState):
    plan: str


@pytest.mark.parametrize("has_output", [True, False], ids=["known", "unknown"])
async def test_the_output_schema_of_a_remote_graph_decides_what_is_shared(has_output: bool) -> None:
    """If the server does not report the output schema, the whole state is shared."""
    graph = StateGraph(Whole, output_schema=Shown).add_node("plan", lambda state: {"plan": "go", "notes": "secret"})
    compiled = graph.add_edge(START, "plan").compile(checkpointer=InMemorySaver())
    async with remote(compiled, has_output=has_output) as thread:
        await thread.say("hi")
        state = (await thread.runner.view_thread(KEY)).state.value
    assert state == {"plan": "go"} if has_output else {"plan": "go", "notes": "secret"}


@pytest.mark.parametrize(("stored", "sent", "is_valid"), [
    (["a"], None, False), (["a"], 5, False), (["a"], {}, False), (["a"], ["b"], True), ({"x": 1}, {"x": 2}, True),
    (1, "one", False), (1, 2.5, True), ("a", None, True), (None, ["b"], True), (True, "x", False),
])  # fmt: skip
def test_a_value_that_a_servers_reducer_may_not_combine_is_refused(stored: Any, sent: Any, is_valid: bool) -> None:
    """The server kept it as a pending write, and every later run of the thread failed."""
    schema = StateSchema(input_keys=None, is_remote=True)
    edits = find_edits({"log": sent}, schema, {"log": stored})
    assert edits.invalid_keys == ([] if is_valid else ["log"])
