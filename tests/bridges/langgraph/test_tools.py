"""The tools of a graph, as clients can list them. No graph runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from langchain_core.tools import tool
from langgraph.graph import MessagesState
from langgraph.prebuilt import InjectedState, ToolNode

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.protocol.events import Tool
from tests.bridges.langgraph.scripted import ScriptedModel
from tests.bridges.langgraph.world import agent_graph, get_weather, in_a_row, react_agent

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GET_WEATHER = Tool(name="get_weather", description="The weather of a city.", parameters=CITY)


@tool
def book(city: str, state: Annotated[Any, InjectedState]) -> str:
    """Book a room."""
    raise NotImplementedError


async def listed(graph: Any, **options: Any) -> list[Tool]:
    return await LangGraphBridge(graph, **options).list_tools(PlatformContext())


async def test_the_tools_of_all_tool_nodes_are_listed_without_injected_arguments() -> None:
    graph = in_a_row(ToolNode([get_weather]), agent_graph(ScriptedModel(), book))
    assert await listed(graph) == [GET_WEATHER, Tool(name="book", description="Book a room.", parameters=CITY)]


async def test_the_tools_of_an_agent_of_the_sdk_are_listed() -> None:
    assert await listed(react_agent(ScriptedModel(), get_weather)) == [GET_WEATHER]


async def test_tools_that_cannot_be_found_are_not_listed() -> None:
    """Those that a node calls by itself, and those of a graph on a LangGraph server."""

    async def call_tools(state: MessagesState) -> Any:
        raise NotImplementedError

    assert await listed(in_a_row(call_tools)) == []
    assert await listed(None, url="http://127.0.0.1:1") == []


async def test_a_graph_that_is_opened_to_list_its_tools_is_closed() -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def open_graph(ctx: PlatformContext) -> AsyncIterator[Any]:
        yield agent_graph(ScriptedModel(), get_weather)
        closed.append("graph")

    assert await listed(open_graph) == [GET_WEATHER]
    assert closed == ["graph"]
