"""Graphs in graphs and nodes side by side: each subgraph a subagent, each node a step, each message whole."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import TOOL, agent_graph, get_weather, langgraph, react_agent, steps
from tests.versions.marks import requires
from tests.world import user

ROME = '{"city": "Rome"}'


def wrapped(inner: Any, **compiled: Any) -> Any:
    return StateGraph(MessagesState).add_node("helper", inner).add_edge(START, "helper").compile(**compiled)


async def test_a_subgraph_is_a_subagent_with_its_own_messages() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("Su", "n."))
    async with langgraph(wrapped(agent_graph(model, get_weather))) as thread:
        assert await thread.say("go") == [
            "SUB s1 helper",
            "CS c1 get_weather < m1 @s1",
            f"CA c1 {ROME} @s1",
            "CE c1 @s1",
            'CR c1 "sunny in Rome" @s1',
            "TS m2 @s1",
            'TC m2 "Su" @s1',
            'TC m2 "n." @s1',
            "TE m2 @s1",
            "END SUB s1",
            "MS",
            "RF success",
        ]
        assert steps(thread.events) == [
            "+helper",
            "+agent",
            "-agent",
            "+tools",
            "-tools",
            "+agent",
            "-agent",
            "-helper",
        ]


async def test_messages_of_a_subgraph_are_part_of_the_conversation_also_without_a_checkpointer() -> None:
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), says("Sun."), says("Yes."), says("Bye."))
    async with langgraph(wrapped(agent_graph(model, get_weather))) as thread:
        for text in ("weather?", "sure?", "thanks"):
            await thread.say(text)
    first = ["user: weather?", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome", "ai: Sun."]
    assert model.saw[2:] == [[*first, "user: sure?"], [*first, "user: sure?", "ai: Yes.", "user: thanks"]]


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])
async def test_messages_of_a_subgraph_are_part_of_the_conversation_of_a_fork(saver: Any) -> None:
    answers = [says(text) for text in ("Sun.", "Yes.", "No.", "So.")]
    model = ScriptedModel(calls(call("c1", "get_weather", ROME)), *answers)
    async with langgraph(wrapped(agent_graph(model, get_weather), checkpointer=saver())) as thread:
        for text in ("weather?", "sure?"):
            await thread.say(text)
        fork = dataclasses.replace(thread, name="fork")
        await fork.run(user("n1", "really?"), fork=ForkOrigin(thread_id="t", message_id="u2"))
        await fork.run(user("n2", "and now?"))
    first = ["user: weather?", "ai: c1 get_weather {'city': 'Rome'}", "tool c1: sunny in Rome", "ai: Sun."]
    assert model.saw[3:] == [[*first, "user: really?"], [*first, "user: really?", "ai: No.", "user: and now?"]]


async def test_what_a_subgraph_kept_to_itself_does_not_become_the_conversation() -> None:
    inner, outer = ScriptedModel(says("secret")), ScriptedModel(says("one"), says("two"))
    private = agent_graph(inner)

    async def node(state: MessagesState) -> Any:
        if len(state["messages"]) == 1:
            await private.ainvoke({"messages": [HumanMessage("think")]})
        return {"messages": [await outer.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    async with langgraph(graph) as thread:
        first = await thread.say("a")
        await thread.say("b")
    assert first[:5] == ["SUB s1 node", "TS m1 @s1", 'TC m1 "secret" @s1', "TE m1 @s1", "TS m2"]
    assert outer.saw[1] == ["user: a", "ai: one", "user: b"]


async def test_an_agent_as_a_tool_works_for_its_call() -> None:
    inner = react_agent(ScriptedModel(calls(call("i1", "get_weather", ROME)), says("inner")), get_weather)

    @tool
    async def helper(question: str) -> str:
        """Helps."""
        return (await inner.ainvoke({"messages": [HumanMessage(question)]}))["messages"][-1].content

    model = ScriptedModel(calls(call("o1", "helper", '{"question": "?"}')), says("outer"))
    async with langgraph(react_agent(model, helper)) as thread:
        assert await thread.say("go") == [
            "CS o1 helper < m1",
            'CA o1 {"question": "?"}',
            "CE o1",
            "SUB s1 helper < o1",
            "CS i1 get_weather < m2 @s1",
            f"CA i1 {ROME} @s1",
            "CE i1 @s1",
            'CR i1 "sunny in Rome" @s1',
            "TS m3 @s1",
            'TC m3 "inner" @s1',
            "TE m3 @s1",
            'CR o1 "inner"',
            "END SUB s1",
            "TS m4",
            'TC m4 "outer"',
            "TE m4",
            "MS",
            "RF success",
        ]
    assert model.saw[1] == ["user: go", "ai: o1 helper {'question': '?'}", "tool o1: inner"]


async def test_subgraphs_in_subgraphs_know_their_parent() -> None:
    innermost = agent_graph(ScriptedModel(says("deep")))
    middle = StateGraph(MessagesState).add_node("inner", innermost).add_edge(START, "inner").compile()
    async with langgraph(wrapped(middle)) as thread:
        assert await thread.say("go") == [
            "SUB s1 helper",
            "SUB s2 inner < s1",
            "TS m1 @s2",
            'TC m1 "deep" @s2',
            "TE m1 @s2",
            "END SUB s2",
            "END SUB s1",
            "MS",
            "RF success",
        ]


async def test_parallel_nodes_stream_at_once_and_each_message_stays_whole() -> None:
    """Strictly in turns: a, b, a, b."""
    turns = [anyio.Event() for _ in range(4)]

    class InTurns(ScriptedModel):
        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            mine = iter(range(0 if "a" in self.turns[0][0].content else 1, 4, 2))
            async for chunk in super()._astream(messages, *args, **kwargs):
                at = next(mine)
                if at:
                    await turns[at - 1].wait()
                yield chunk
                turns[at].set()

    models = {"a": InTurns(says("a1", "a2")), "b": InTurns(says("b1", "b2"))}
    graph = StateGraph(MessagesState)
    for name, model in models.items():

        async def node(state: MessagesState, model: Any = model) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph.add_node(name, node)
        graph.add_edge(START, name)
    async with langgraph(graph.compile()) as thread:
        stream = await thread.say("go")
    assert [word for word in stream if word.startswith("TC")] == [
        'TC m1 "a1"',
        'TC m2 "b1"',
        'TC m1 "a2"',
        'TC m2 "b2"',
    ]
    assert sorted(word for word in stream if word[:2] in {"TS", "TE"}) == ["TE m1", "TE m2", "TS m1", "TS m2"]
    assert sorted(steps(thread.events)) == ["+a", "+b", "-a", "-b"]


async def test_one_node_many_times_at_once_is_one_step_until_the_last_is_done() -> None:
    class State(TypedDict):
        found: Annotated[list[int], operator.add]

    graph = StateGraph(State)
    graph.add_node("work", lambda state: {"found": [state["n"]]})
    graph.add_conditional_edges(START, lambda state: [Send("work", {"n": n}) for n in range(3)], ["work"])
    async with langgraph(graph.compile()) as thread:
        stream = await thread.say("go")
        assert steps(thread.events) == ["+work", "-work"]
    assert 'SD [{"op": "add", "path": "/found", "value": [0, 1, 2]}]' in stream


@requires("langgraph", "1.2.19", "a function of a graph gets its previous result")
async def test_a_graph_of_functions_gets_the_whole_conversation() -> None:
    model = ScriptedModel(says("one"), says("two"))

    @task
    async def ask(messages: list[Any]) -> AIMessage:
        return await model.ainvoke(messages)

    @entrypoint(checkpointer=InMemorySaver())
    async def workflow(values: dict[str, Any]) -> str:
        return (await ask(values["messages"])).content

    async with langgraph(workflow) as thread:
        await thread.say("a")
        assert steps(thread.events) == ["+workflow", "+ask", "-ask", "-workflow"]
        await thread.say("b")
    assert (thread.text(), model.saw[1]) == ("two", ["user: a", "ai: one", "user: b"])


async def test_a_client_tool_called_in_a_subgraph_waits_for_the_client() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", "{}")), says("Red."))
    graph = wrapped(agent_graph(model), checkpointer=InMemorySaver())
    async with langgraph(graph, tools=[TOOL]) as thread:
        assert (await thread.say("go"))[-1] == "RF waits for f1"
        assert (await thread.answer(f1="done"))[-1] == "RF success"
    assert model.saw[1] == ["user: go", "ai: f1 change_background {}", "tool f1: done"]
    assert isinstance(thread.events[-1], e.RunFinished)
