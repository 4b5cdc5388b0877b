"""The tools of ADK agents, as clients can list them. No agent runs."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import BaseTool, FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from ambient_runner.adk import ClientToolset
from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.protocol.events import Tool
from tests.bridges.adk.scripted import Scripted


def look(city: str, tool_context: ToolContext) -> str:
    """Look at a city."""
    raise NotImplementedError


def ask(question: str) -> None:
    """Ask a person."""
    raise NotImplementedError


class Typed(BaseTool):
    """A tool that declares its parameters in Google's dialect."""

    def __init__(self) -> None:
        super().__init__(name="typed", description="Typed.")

    def _get_declaration(self) -> types.FunctionDeclaration:
        schema = types.Schema(type=types.Type.OBJECT, properties={"a": types.Schema(type=types.Type.STRING)})
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters=schema)


class Broken(BaseTool):
    def __init__(self) -> None:
        super().__init__(name="broken", description="Broken.")

    def _get_declaration(self) -> types.FunctionDeclaration:
        raise ValueError("no schema")


class Tools(BaseToolset):
    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        return [FunctionTool(look)]


class BrokenTools(BaseToolset):
    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        raise ConnectionError("the server is gone")


def agent(name: str, *tools: Any, **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=Scripted.of(["unused"]), tools=list(tools), **options)


async def listed(root: Any) -> list[Tool]:
    return await ADKBridge(root).list_tools(PlatformContext())


async def test_the_tools_of_an_agent_are_listed_with_their_schemas() -> None:
    found = {tool.name: tool for tool in await listed(agent("root", look, Typed(), Broken()))}
    assert found["look"].description == "Look at a city."
    assert found["look"].parameters["properties"].keys() == {"city"}
    assert found["typed"].parameters == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert found["broken"].parameters == {"type": "object", "properties": {}}


async def test_the_tools_of_sub_agents_toolsets_and_agents_as_tools_are_listed() -> None:
    helper = agent("helper", LongRunningFunctionTool(ask))
    expert = agent("expert", Typed(), description="Knows it.")
    root = agent("root", Tools(tool_name_prefix="far"), AgentTool(expert), ClientToolset(), sub_agents=[helper])
    assert {tool.name for tool in await listed(root)} == {"far_look", "expert", "ask"}


async def test_a_toolset_that_fails_is_left_out() -> None:
    assert [tool.name for tool in await listed(agent("root", BrokenTools(), look))] == ["look"]
