"""Agents that a tool calls are subagents with their own names, each attributed to its tool call."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from ambient_runner.protocol import events as e
from tests.bridges.langgraph.scripted import ScriptedModel, call, calls, says
from tests.bridges.langgraph.world import agent_graph, langgraph

ASK = '{"question": "why"}'


def agent_tool(answer: str, name: str | None, *, before: Any = None) -> Any:
    inner = create_agent(ScriptedModel(says(answer), says(answer)), [], name=name)

    @tool
    async def ask(question: str) -> str:
        """Asks another agent."""
        if before is not None:
            await before.ainvoke(question)
        found = await inner.ainvoke({"messages": [("user", question)]})
        return found["messages"][-1].text

    ask.name = f"ask_{answer}"
    return ask


def own_graph(model: ScriptedModel, *tools: Any) -> Any:
    """The tool node of a graph of one's own gets the state, not one call."""
    return agent_graph(model, *tools)


def ready_made(model: ScriptedModel, *tools: Any) -> Any:
    return create_agent(model, list(tools))


def subagents(events: list[e.Event]) -> set[tuple[str, str | None]]:
    return {(event.name, event.parent_tool_call_id) for event in events if isinstance(event, e.SubagentStarted)}


@pytest.mark.parametrize("make", [own_graph, ready_made])
async def test_agents_in_tools_have_their_own_names(make: Any) -> None:
    tools = agent_tool("a", "researcher"), agent_tool("b", "writer")
    model = ScriptedModel(calls(call("c1", "ask_a", ASK), call("c2", "ask_b", ASK, index=1)), says("Done."))
    async with langgraph(make(model, *tools)) as thread:
        await thread.say("go")
        assert subagents(thread.events) == {("researcher", "c1"), ("writer", "c2")}


@pytest.mark.parametrize("make", [own_graph, ready_made])
async def test_an_agent_without_a_name_has_that_of_its_tool(make: Any) -> None:
    model = ScriptedModel(calls(call("c1", "ask_a", ASK)), says("Done."))
    async with langgraph(make(model, agent_tool("a", None))) as thread:
        await thread.say("go")
        assert subagents(thread.events) == {("ask_a", "c1")}


async def test_what_else_a_tool_calls_is_not_taken_for_the_agent() -> None:
    model = ScriptedModel(calls(call("c1", "ask_a", ASK)), says("Done."))
    before = RunnableLambda(str.upper).with_config(run_name="shout")
    async with langgraph(own_graph(model, agent_tool("a", "researcher", before=before))) as thread:
        await thread.say("go")
        assert subagents(thread.events) == {("researcher", "c1")}
