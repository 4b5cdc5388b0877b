"""Rows 12 and 15: graphs that use the published `copilotkit` package, unchanged."""

from __future__ import annotations

from typing import Any

from copilotkit import CopilotKitMiddleware
from copilotkit.langgraph import (
    CopilotKitState,
    copilotkit_customize_config,
    copilotkit_emit_message,
    copilotkit_emit_state,
    copilotkit_emit_tool_call,
    copilotkit_exit,
    copilotkit_interrupt,
)
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says, text
from tests.bridges.langgraph.world import get_weather, langgraph, yes

SHOW_MAP = e.Tool(name="show_map", description="Show a city.", parameters={"type": "object", "properties": {}})
ROME = '{"city": "Rome"}'


class State(CopilotKitState):
    steps: list[str]


def graph_of(node: Any) -> Any:
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())


async def test_what_a_node_emits_has_its_effect() -> None:
    async def node(state: State, config: RunnableConfig) -> Any:
        await copilotkit_emit_state(config, {**state, "steps": ["a"]})
        await copilotkit_emit_message(config, "Half.")
        await copilotkit_emit_tool_call(config, name="search", args={"n": 1})
        await copilotkit_exit(config)
        return {"messages": [AIMessage("Half.")], "steps": ["a", "b"]}

    async with langgraph(graph_of(node)) as thread:
        lines = await thread.say("go")
    kinds = [word.split(" ")[0] for word in lines]
    assert kinds == ["SS", "TS", "TC", "TE", "CS", "CA", "CE", "CUSTOM", "SD", "MS", "RF"]
    assert (lines[0], lines[7]) == ('SS {"steps": ["a"]}', "CUSTOM Exit true")
    assert thread.text() == "Half."


async def test_a_customized_config_hides_text_and_calls_and_shows_state() -> None:
    model = ScriptedModel(calls(text("psst"), call("c1", "plan", '{"steps": ["a", "b"]}')))

    async def node(state: State, config: RunnableConfig) -> Any:
        mapping: Any = [{"state_key": "steps", "tool": "plan", "tool_argument": "steps"}]
        quiet = copilotkit_customize_config(
            config, emit_messages=False, emit_tool_calls=False, emit_intermediate_state=mapping
        )
        answer = await model.ainvoke(state["messages"], quiet)
        return {"steps": answer.tool_calls[0]["args"]["steps"]}

    async with langgraph(graph_of(node)) as thread:
        lines = await thread.say("go")
    assert lines == ['SD [{"op": "add", "path": "/steps", "value": ["a", "b"]}]', "MS", "RF success"]


async def test_the_packages_middleware_ends_the_run_and_the_client_answers() -> None:
    model = ScriptedModel(calls(call("c1", "show_map", ROME)), says("Shown."))
    graph = create_agent(model, [get_weather], middleware=[CopilotKitMiddleware()], checkpointer=InMemorySaver())
    async with langgraph(graph, tools=[SHOW_MAP]) as thread:
        assert (await thread.say("go"))[-1] == "RF waits for c1"
        assert not [event for event in thread.seen if isinstance(event, e.Custom) and event.name == "ambient:dropped"]
        await thread.answer(c1="ok")
        assert thread.text() == "Shown."
    assert model.saw[1] == ["user: go", "ai: c1 show_map {'city': 'Rome'}", "tool c1: ok"]


async def test_the_packages_interrupt_has_its_message_and_takes_a_text() -> None:
    def node(state: State) -> Any:
        answer, _ = copilotkit_interrupt(message="Your name?")
        return {"messages": [AIMessage(f"Hello {answer}")]}

    async with langgraph(graph_of(node)) as thread:
        await thread.say("go")
        (raised,) = thread.interrupts
        assert raised.message == "Your name?"
        await thread.resume(yes(raised, "Ann"))
        assert thread.text() == "Hello Ann"
