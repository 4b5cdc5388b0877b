"""The state that clients see: the keys of the graph's output schema, and more only if the configuration shares it."""

from __future__ import annotations

from operator import add
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.callbacks import adispatch_custom_event
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from ambient_runner.bridges.langgraph.config import LangGraphConfig, PredictStateMapping
from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import Thread, langgraph, yes
from tests.world import KEY

SAVERS = pytest.mark.parametrize("saver", [InMemorySaver, lambda: None], ids=["stored", "not stored"])


class Whole(MessagesState):
    plan: str
    notes: Annotated[list[str], add]
    question: str


class Shown(MessagesState):
    plan: str


class Asked(MessagesState):
    question: str


class Handover(TypedDict):
    key_of_the_vault: str


def plan(state: Any) -> Any:
    return {"plan": "go", "notes": ["the vault is open"], "question": "asked"}


def output_graph(**options: Any) -> Any:
    graph = StateGraph(Whole, input_schema=Asked, output_schema=Shown)
    return graph.add_node("plan", plan).add_edge(START, "plan").compile(**options)


def sent_state(thread: Thread) -> str:
    """Everything that the run sent about its state, as text."""
    return repr([event for event in thread.seen if isinstance(event, e.StateSnapshot | e.StateDelta)])


async def state_of(thread: Thread) -> Any:
    return (await thread.runner.view_thread(KEY)).state.value


@SAVERS
async def test_only_the_keys_of_the_output_schema_are_shared(saver: Any) -> None:
    async with langgraph(output_graph(checkpointer=saver())) as thread:
        for _ in range(2):
            await thread.say("hi")
            assert await state_of(thread) == {"plan": "go"}
            assert "vault" not in sent_state(thread)


async def test_a_client_may_set_a_key_of_the_input_that_it_does_not_see() -> None:
    seen: list[str] = []

    def read(state: Any) -> Any:
        seen.append(state["question"])

    graph = StateGraph(Whole, input_schema=Asked, output_schema=Shown)
    compiled = graph.add_node("read", read).add_edge(START, "read").compile()
    async with langgraph(compiled) as thread:
        await thread.say("hi", state={"question": "why?", "notes": ["forged"]})
    assert seen == ["why?"]


async def test_the_configuration_shares_further_keys() -> None:
    async with langgraph(output_graph(), LangGraphConfig(shared_state=["notes"])) as thread:
        await thread.say("hi")
        assert await state_of(thread) == {"plan": "go", "notes": ["the vault is open"]}


async def test_a_private_channel_between_two_nodes_is_not_shared() -> None:
    def open_vault(state: Shown) -> Handover:
        return {"key_of_the_vault": "0000"}

    def use_key(state: Handover) -> Any:
        return {"plan": f"used a key of {len(state['key_of_the_vault'])} digits"}

    graph = StateGraph(Shown).add_node("open_vault", open_vault).add_node("use_key", use_key, input_schema=Handover)
    compiled = graph.add_edge(START, "open_vault").add_edge("open_vault", "use_key").compile()
    async with langgraph(compiled) as thread:
        await thread.say("hi")
        assert await state_of(thread) == {"plan": "used a key of 4 digits"}
        assert "0000" not in sent_state(thread)


class CountingState(AgentState[Any]):
    budget: Annotated[NotRequired[int], PrivateStateAttr]
    mood: NotRequired[str]


class Counting(AgentMiddleware[CountingState]):
    state_schema = CountingState

    def before_model(self, state: Any, runtime: Any) -> Any:
        return {"budget": 31337, "mood": "calm"}


@SAVERS
async def test_private_state_of_an_agents_middleware_is_not_shared(saver: Any) -> None:
    agent = create_agent(ScriptedModel(says("Hello.")), middleware=[Counting()], checkpointer=saver())
    async with langgraph(agent) as thread:
        await thread.say("hi")
        assert await state_of(thread) == {"mood": "calm"}
        assert "31337" not in sent_state(thread)


async def test_private_state_stays_private_across_an_interrupt() -> None:
    def ask(state: Any) -> Any:
        return {"plan": interrupt("Really?")}

    graph = StateGraph(Whole, input_schema=Asked, output_schema=Shown).add_node("plan", plan).add_node("ask", ask)
    compiled = graph.add_edge(START, "plan").add_edge("plan", "ask").compile(checkpointer=InMemorySaver())
    async with langgraph(compiled) as thread:
        await thread.say("hi")
        assert await state_of(thread) == {"plan": "go"}
        await thread.resume(yes(thread.interrupts[0], "stay"))
        assert await state_of(thread) == {"plan": "stay"}


async def test_a_graph_without_an_output_schema_shares_what_it_returns() -> None:
    @entrypoint()
    async def work(given: Any) -> Any:
        return {"plan": "go"}

    async with langgraph(work) as thread:
        await thread.say("hi")
        assert await state_of(thread) == {"plan": "go"}


async def test_state_that_a_node_emits_has_no_private_keys() -> None:
    async def work(state: Whole) -> Any:
        await adispatch_custom_event("manually_emit_state", {"plan": "half", "notes": ["the vault"], "progress": 3})
        return {"plan": "whole"}

    graph = StateGraph(Whole, output_schema=Shown).add_node("work", work).add_edge(START, "work")
    async with langgraph(graph.compile()) as thread:
        await thread.say("hi")
    snapshots = [event.snapshot for event in thread.seen if isinstance(event, e.StateSnapshot)]
    assert snapshots[0] == {"plan": "half", "progress": 3}


@pytest.mark.parametrize("wrong", ["x", {"__overwrite__": 1}], ids=repr)
async def test_the_roll_back_of_a_refused_edit_does_not_show_the_private_value(wrong: Any) -> None:
    """Bug: the state before the run was restored for clients too, private keys included."""
    graph = StateGraph(Whole, output_schema=Shown).add_node("plan", plan).add_edge(START, "plan")
    async with langgraph(graph.compile(checkpointer=InMemorySaver())) as thread:
        await thread.say("hi")
        await thread.say("hi", state={"plan": "go", "notes": wrong})
        assert "vault" not in sent_state(thread)
        assert "vault" not in repr(await state_of(thread))


async def test_a_private_key_is_not_predicted() -> None:
    mapping = PredictStateMapping(state_key="notes", tool="write", tool_argument="text")
    model = ScriptedModel(call("c1", "write", '{"text": "the vault"}'), says("Done."))
    graph = StateGraph(Whole, output_schema=Shown)

    async def answer(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph.add_node("answer", answer).add_edge(START, "answer")
    async with langgraph(graph.compile(), LangGraphConfig(predict_state=[mapping])) as thread:
        await thread.say("hi")
    assert "vault" not in sent_state(thread)
    assert not [event for event in thread.seen if isinstance(event, e.Custom) and event.name == "PredictState"]


def predicting(mapping: Any, saver: Any) -> Any:
    """A graph whose model writes notes in a hidden call, and requests in its metadata that they are shown as state."""
    hidden = {"emit-messages": False, "emit-tool-calls": False, "predict_state": [mapping]}
    turn = calls(call("c1", "write", '{"text": "the vault is open"}'))

    async def work(state: Whole) -> Any:
        await ScriptedModel(turn).with_config(metadata=hidden).ainvoke(state["messages"])

    graph = StateGraph(Whole, output_schema=Shown).add_node("work", work).add_edge(START, "work")
    return graph.compile(checkpointer=saver())


@SAVERS
@pytest.mark.parametrize(("key", "is_shown"), [("notes", False), ("plan", True), ("progress", True)])
async def test_a_hidden_call_predicts_only_keys_that_clients_see(saver: Any, key: str, is_shown: bool) -> None:
    mapping = {"state_key": key, "tool": "write", "tool_argument": "text"}
    for graph, config in (
        (predicting(mapping, saver), None),
        (predicting({}, saver), LangGraphConfig(predict_state=[PredictStateMapping(**mapping)])),
    ):
        async with langgraph(graph, config) as thread:
            await thread.say("hi")
            assert ("vault" in sent_state(thread), thread.error) == (is_shown, None)


async def test_a_private_key_that_is_shared_is_predicted() -> None:
    mapping = {"state_key": "notes", "tool": "write", "tool_argument": "text"}
    async with langgraph(predicting(mapping, InMemorySaver), LangGraphConfig(shared_state=["notes"])) as thread:
        await thread.say("hi")
        assert "vault" in sent_state(thread)
