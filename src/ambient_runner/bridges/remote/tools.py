"""The tools that another server lists for its agent."""

from __future__ import annotations

from typing import Any

import msgspec

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.toolkit.tools import declare_mcp_tool, declare_tool
from ambient_runner.protocol.events import Tool  # noqa: TC001  msgspec reads it from the annotation

__all__ = ["parse_tools"]

_MAX_TOOLS = 1_000


class _ToolList(msgspec.Struct):
    tools: list[Tool]


def parse_tools(body: Any) -> list[Tool]:
    """Return the tools in a response to `GET /tools`. Raises: RemoteFailed if it is something else."""
    try:
        listed = msgspec.convert(body, _ToolList).tools
    except msgspec.ValidationError as error:
        raise errors.tools_unknown() from error
    return [_declare(tool) for tool in listed[:_MAX_TOOLS]]


def _declare(tool: Tool) -> Tool:
    metadata = tool.metadata or {}
    if metadata.get("source") != "mcp":
        return declare_tool(tool.name, tool.description, tool.parameters)
    return declare_mcp_tool(tool.name, tool.description, tool.parameters, server=str(metadata.get("mcpServer") or ""))
