"""Answers in the graph's state that were not streamed: written as dicts or tuples, from a cache, or by a command to the parent graph."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import CachePolicy, Command

from tests.bridges.langgraph.scripted import ScriptedModel, atomic, call, calls, says, text
from tests.bridges.langgraph.world import TOOL, in_a_row, langgraph

SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


def speaking(model: Any) -> Any:
    async def node(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return node


@SAVERS
async def test_messages_written_as_dicts_or_tuples_are_emitted_whole_in_order_and_once(saver: Any) -> None:
    graph = in_a_row(
        lambda state: {"messages": [{"role": "assistant", "content": "One."}, ("ai", "Two.")]},
        lambda state: {"messages": [AIMessage("Three.")]},
        lambda state: {"messages": ("ai", "Four.")},
        checkpointer=saver(),
    )
    async with langgraph(graph) as thread:
        for _ in range(2):
            assert [word for word in await thread.say("hi") if word.startswith(("TC", "RF"))] == [
                'TC m1 "One."',
                'TC m2 "Two."',
                'TC m3 "Three."',
                'TC m4 "Four."',
                "RF success",
            ]


async def test_a_result_and_a_call_written_as_dicts_are_emitted() -> None:
    graph = in_a_row(
        lambda state: {
            "messages": [
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "f", "args": {"a": 1}}]}
            ]
        },
        lambda state: {"messages": [{"role": "tool", "content": "done", "tool_call_id": "c1"}]},
        lambda state: {"messages": [{"role": "tool", "content": "of nothing", "tool_call_id": "c2"}]},
        checkpointer=InMemorySaver(),
    )
    async with langgraph(graph) as thread:
        assert await thread.say("go") == [
            "CS c1 f < m1",
            'CA c1 {"a":1}',
            "CE c1",
            'CR c1 "done"',
            "MS",
            "RF success",
        ]


async def test_a_call_of_the_client_written_as_a_dict_is_executed_when_the_run_ends() -> None:
    graph = in_a_row(
        lambda state: {
            "messages": [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "c1", "name": "change_background", "args": {}}],
                }
            ]
        },
        checkpointer=InMemorySaver(),
    )
    async with langgraph(graph, tools=[TOOL]) as thread:
        assert await thread.say("go") == [
            "CS c1 change_background < m1",
            "CA c1 {}",
            "CE c1",
            "MS",
            "RF waits for c1",
        ]


async def test_the_answer_of_a_cached_node_is_emitted_and_not_counted_as_usage() -> None:
    model = ScriptedModel(says("Hel", "lo", usage=(3, 4)))
    graph = StateGraph(MessagesState)
    policy = CachePolicy(key_func=lambda state: state["messages"][-1].content)
    graph.add_node("agent", speaking(model), cache_policy=policy).add_edge(START, "agent")
    async with langgraph(graph.compile(cache=InMemoryCache(), checkpointer=InMemorySaver())) as thread:
        first = await thread.say("hi")
        used = thread.end.usage
        thread.name = "another"
        assert await thread.say("hi") == ["TS m1", 'TC m1 "Hello"', "TE m1", "MS", "RF success"]
        assert (len(model.saw), first[-1], thread.end.usage) == (1, "RF success", None)
    assert used is not None


async def test_the_result_of_a_call_that_hands_over_to_the_parent_graph_is_emitted() -> None:
    @tool
    def hand_over(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Hands over."""
        values = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(graph=Command.PARENT, goto="other", update={"messages": [values]})

    model = ScriptedModel(calls(call("c1", "hand_over", "{}")))
    inner = StateGraph(MessagesState).add_node("agent", speaking(model)).add_node("tools", ToolNode([hand_over]))
    inner.add_edge(START, "agent").add_edge("agent", "tools")
    outer = StateGraph(MessagesState).add_node("first", inner.compile())
    outer.add_node("other", lambda state: {"messages": [AIMessage("Mine now.")]})
    outer.add_edge(START, "first")
    async with langgraph(outer.compile(checkpointer=InMemorySaver())) as thread:
        stream = await thread.say("go")
    assert [word for word in stream if word.startswith(("CR", "RF"))] == ['CR c1 "handed over" @s1', "RF success"]


@SAVERS
async def test_the_history_is_not_emitted_again(saver: Any) -> None:
    graph = in_a_row(lambda state: {"messages": [("ai", f"{len(state['messages'])}")]}, checkpointer=saver())
    async with langgraph(graph) as thread:
        for expected in ("1", "3", "5"):
            await thread.say("more")
            assert thread.text() == expected


def speaking_plainly(model: Any) -> Any:
    """A node that is no coroutine, and waits for its model in a thread."""
    return lambda state: {"messages": [model.invoke(state["messages"])]}


@pytest.mark.parametrize("node", [speaking, speaking_plainly])
@pytest.mark.parametrize("tags", [["nostream"], []], ids=["not streamed", "streamed"])
async def test_messages_of_a_muted_model_stay_hidden_also_in_later_runs(tags: list[str], node: Any) -> None:
    model = ScriptedModel(script=lambda messages: says("secret"))
    quiet = model.with_config(metadata={"emit-messages": False}, tags=tags)
    graph = in_a_row(
        node(quiet),
        lambda state: {"messages": [{"role": "assistant", "content": "."}]},
        checkpointer=InMemorySaver(),
    )
    async with langgraph(graph) as thread:
        for _ in range(2):
            await thread.say("hi")
            assert (thread.text(), thread.error) == (".", None)
    assert "ai: secret" in model.saw[1]


async def test_the_calls_of_a_muted_model_that_is_not_streamed_stay_hidden() -> None:
    model = ScriptedModel(calls(text("Look:"), atomic("c1", "get_weather", {"city": "Rome"})))
    quiet = model.with_config(metadata={"emit-tool-calls": False}, tags=["nostream"])
    async with langgraph(in_a_row(speaking(quiet), checkpointer=InMemorySaver())) as thread:
        assert await thread.say("hi") == ["TS m1", 'TC m1 "Look:"', "TE m1", "MS", "RF success"]


async def test_a_model_that_is_only_not_streamed_is_emitted_whole() -> None:
    graph = in_a_row(speaking(ScriptedModel(says("Hel", "lo")).with_config(tags=["nostream"])))
    async with langgraph(graph) as thread:
        assert await thread.say("hi") == ["TS m1", 'TC m1 "Hello"', "TE m1", "MS", "RF success"]


@pytest.mark.parametrize("returned", ["messages", "answers"])
@SAVERS
async def test_a_graph_made_of_a_function_gets_the_whole_conversation(saver: Any, returned: str) -> None:
    """With a checkpointer its last return value is stored, which is no conversation."""
    model = ScriptedModel(script=lambda messages: says("ok"))

    async def work(values: dict[str, Any]) -> Any:
        return {returned: [await model.ainvoke(values["messages"])]}

    async with langgraph(entrypoint(checkpointer=saver())(work)) as thread:
        for word in ("one", "two", "three"):
            await thread.say(word)
            assert thread.text() == "ok"
    assert model.saw[-1] == ["user: one", "ai: ok", "user: two", "ai: ok", "user: three"]


@SAVERS
async def test_the_value_of_an_entrypoint_that_saves_another_is_emitted_and_stored(saver: Any) -> None:
    """The run succeeded without a message."""

    async def work(values: dict[str, Any], *, previous: Any = None) -> Any:
        return entrypoint.final(value={"messages": [AIMessage("answer")]}, save={"messages": [AIMessage("answer")]})

    async with langgraph(entrypoint(checkpointer=saver())(work)) as thread:
        assert await thread.say("hi") == ["TS m1", 'TC m1 "answer"', "TE m1", "MS", "RF success"]
        await thread.say("again")
        assert await thread.messages() == ["user: hi", "assistant: answer", "user: again", "assistant: answer"]
