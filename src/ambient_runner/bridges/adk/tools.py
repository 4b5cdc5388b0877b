"""The tools that the agents of a tree have themselves: their names, and their declarations for clients. No agent is run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.tools.base_toolset import BaseToolset

from ambient_runner.bridges.adk.sdk import function_declaration
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.adk.tools import BaseTool
    from google.adk.workflow import BaseNode
    from google.genai import types

    from ambient_runner.protocol.events import Tool

__all__ = ["list_tools", "own_tool_names"]

_MCP_MODULES = "google.adk.tools.mcp_tool"
"""The package of tools that come from an MCP server. It cannot be imported without the package `mcp`."""


def own_tool_names(nodes: Iterable[BaseNode]) -> frozenset[str]:
    """Return the names of the agents' tools. Those of toolsets are not among them: only a toolset knows them, for each model request."""
    agents: list[Any] = [node for node in nodes if isinstance(node, LlmAgent)]
    tools: list[Any] = [tool for agent in agents for tool in agent.tools]
    return frozenset(_tool_name(tool) for tool in tools if not isinstance(tool, BaseToolset))


async def list_tools(nodes: Iterable[BaseNode]) -> list[Tool]:
    """Return the declarations of the agents' tools. Toolsets are asked for theirs; one that fails is logged and left out."""
    agents = [node for node in nodes if isinstance(node, LlmAgent)]
    return [_declare(tool) for agent in agents for tool in await agent.canonical_tools()]


def _declare(tool: BaseTool) -> Tool:
    declare = declare_mcp_tool if type(tool).__module__.startswith(_MCP_MODULES) else declare_tool
    with isolate(f"reading the declaration of the tool {tool.name!r}"):
        found = function_declaration(tool)
        return declare(tool.name, tool.description, None if found is None else _parameters(found))
    return declare(tool.name, tool.description)


def _parameters(declaration: types.FunctionDeclaration) -> Any:
    """Return the JSON Schema of the parameters, which ADK has in Google's dialect for some tools."""
    if declaration.parameters_json_schema is not None or declaration.parameters is None:
        return declaration.parameters_json_schema
    return declaration.parameters.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)


def _tool_name(tool: Any) -> str:
    """Return the name of a tool, or of a function or agent that is used as one."""
    return getattr(tool, "name", None) or getattr(tool, "__name__", "")
