"""The agent's own tools: their declarations for clients, read from the tool registry. No agent is run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.multi_agent import leaf_agents
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ambient_runner.protocol.events import Tool

__all__ = ["list_tools"]

_MCP_MODULES = "strands.tools.mcp"
"""The package of tools that come from an MCP server. It cannot be imported without the package `mcp`."""


def list_tools(executor: Any, plugins: Iterable[Any] = ()) -> list[Tool]:
    """Return the declarations of the tools of an agent, graph or swarm, and of these plugins."""
    tools = [tool for agent in leaf_agents(executor) for tool in _registered_tools(agent)]
    return [_declare(tool) for tool in (*tools, *(tool for plugin in plugins for tool in plugin.tools))]


def _registered_tools(agent: Any) -> Iterator[Any]:
    registry = agent.tool_registry
    yield from registry.registry.values()
    yield from registry.dynamic_tools.values()


def _declare(tool: Any) -> Tool:
    spec: Any = tool.tool_spec
    declare = declare_mcp_tool if type(tool).__module__.startswith(_MCP_MODULES) else declare_tool
    schema = as_object(spec.get("inputSchema"))
    return declare(tool.tool_name, spec.get("description"), schema.get("json", schema))
