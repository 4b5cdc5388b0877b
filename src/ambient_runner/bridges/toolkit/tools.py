"""Declarations of an agent's own tools, as `GET /tools` lists them. `tool_schemas.py` is about the client's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.json_values import to_jsonable_or_type_name
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema
from ambient_runner.protocol.events import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["declare_mcp_tool", "declare_tool", "unique_tools"]


def declare_tool(name: str, description: str | None = None, parameters: Any = None) -> Tool:
    """Return the declaration of a tool. `parameters` is its JSON Schema; one that does not describe an object is left empty."""
    return Tool(name=name, description=description or "", parameters=clean_schema(to_jsonable_or_type_name(parameters)))


def declare_mcp_tool(name: str, description: str | None = None, parameters: Any = None, *, server: str = "") -> Tool:
    """Return the declaration of a tool of an MCP server, with the server's name if that is known."""
    declared = declare_tool(name, description, parameters)
    metadata = {"source": "mcp", **({"mcpServer": server} if server else {})}
    return Tool(name=name, description=declared.description, parameters=declared.parameters, metadata=metadata)


def unique_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools, each name once. Of several with a name, the first counts."""
    found: dict[str, Tool] = {}
    for tool in tools:
        found.setdefault(tool.name, tool)
    return list(found.values())
