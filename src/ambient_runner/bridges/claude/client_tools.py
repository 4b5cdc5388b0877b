"""Tools for Claude besides the CLI's own: the developer's and the client's, as one MCP server in this process.

A tool of the client is not executed here. Its call waits, the run ends with the call open, and the next run brings the result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server

from ambient_runner.bridges.claude.state_tool import STATE_TOOL
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.mcp_content import to_mcp_blocks
from ambient_runner.bridges.toolkit.pending_calls import CallRecord
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox, callable_tools, clean_schema
from ambient_runner.runs.run import enter_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from claude_agent_sdk import McpSdkServerConfig

    from ambient_runner.bridges.claude.translate import ToolCallRecord
    from ambient_runner.bridges.toolkit.pending_calls import PendingCalls
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Run

__all__ = [
    "CLI_TOOLS",
    "SERVER_NAME",
    "TOOL_PREFIX",
    "build_toolbox",
    "call_records",
    "client_tool_name",
    "create_tool_server",
    "mcp_tool_name",
    "normalize_name",
    "offered_tools",
]

SERVER_NAME = "ambient"
_MCP_PREFIX = "mcp__"
"""Prefix of the names of all tools of MCP servers. A client's tool has none for clients, and must not look like another server's."""
TOOL_PREFIX = f"{_MCP_PREFIX}{SERVER_NAME}__"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""The provider allows 64 characters, and the CLI adds its prefix."""

_REPLACED_CHARS = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the CLI replaces by `_` in the names of tools and MCP servers."""

CLI_TOOLS = frozenset(
    {
        *("Agent", "AskUserQuestion", "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "NotebookEdit"),
        *("Read", "Skill", "Task", "TodoWrite", "WebFetch", "WebSearch", "Write"),
    }
)
"""Names of the CLI's own tools: a client's tool of the same name could not be distinguished from them."""
_JSON_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def build_toolbox(tools: Sequence[Tool], custom: Iterable[SdkMcpTool[Any]]) -> Toolbox:
    """Separate the client's tools from the CLI's own, the developer's and those of MCP servers."""
    mcp_names = [tool.name for tool in tools if tool.name.startswith(_MCP_PREFIX)]
    own = {STATE_TOOL, *CLI_TOOLS, *mcp_names, *(tool.name for tool in custom)}
    return Toolbox(tools, own, normalize=normalize_name)


def offered_tools(tools: Sequence[Tool], custom: Iterable[SdkMcpTool[Any]]) -> list[Tool]:
    """Return the client's tools that can be offered to Claude: their names are valid, and no other tool has them."""
    return list(build_toolbox(callable_tools(tools, pattern=_TOOL_NAME), custom).client_tools.values())


def mcp_tool_name(server: str, tool: str) -> str:
    """Return the name under which Claude calls a tool of an MCP server."""
    return f"{_MCP_PREFIX}{normalize_name(server)}__{normalize_name(tool)}"


def normalize_name(name: str) -> str:
    """Return the name of a tool or an MCP server as the CLI writes it."""
    return _REPLACED_CHARS.sub("_", name)


def client_tool_name(cli_name: str) -> str:
    """Return a tool's name as clients know it."""
    return cli_name.removeprefix(TOOL_PREFIX)


def call_records(calls: Mapping[str, ToolCallRecord]) -> dict[str, CallRecord]:
    """Return the model's calls by their ids, with the names of tools that clients know."""
    return {
        call_id: CallRecord(client_id=call.client_id, tool=client_tool_name(call.name), arguments=call.input)
        for call_id, call in calls.items()
    }


def create_tool_server(
    custom: Sequence[SdkMcpTool[Any]],
    client_tools: Sequence[Tool],
    calls: PendingCalls,
    current_run: Callable[[], Run | None],
) -> McpSdkServerConfig | None:
    """Return an MCP server with these tools; None if there are none. `current_run` returns the active run, for tools that use it."""
    waiting_tools = [_waiting_tool(tool, calls) for tool in client_tools]
    tools = [*(_in_current_run(tool, current_run) for tool in custom), *waiting_tools]
    server = create_sdk_mcp_server(SERVER_NAME, tools=tools) if tools else None
    for tool in waiting_tools:
        _relax_schema(cast("dict[str, Any]", tool.input_schema))
    return server


def _in_current_run(tool: SdkMcpTool[Any], current_run: Callable[[], Run | None]) -> SdkMcpTool[Any]:
    """Return the tool with `current_run()` set to the run at the time of the call: an earlier one may have started the process."""

    async def handle_call(arguments: Any) -> dict[str, Any]:
        run = current_run()
        if run is not None:
            enter_run(run)
        return await tool.handler(arguments)

    return SdkMcpTool(tool.name, tool.description, tool.input_schema, handle_call, tool.annotations)


def _waiting_tool(tool: Tool, calls: PendingCalls) -> SdkMcpTool[Any]:
    async def handle_call(arguments: Any) -> dict[str, Any]:
        result = await calls.wait_for_result(tool.name, cast("dict[str, Any]", arguments))
        return {"content": to_mcp_blocks(result.content), "is_error": result.is_error}

    schema = clean_schema(tool.parameters, dialect="json")
    return SdkMcpTool(tool.name, tool.description or tool.name, schema, handle_call)


def _relax_schema(schema: dict[str, Any]) -> None:
    """Reduce a client's schema to what is safe to validate calls with: the required arguments and their types.

    The model has received all of it. The SDK validates calls with this very dict, in the server's event loop, where a pattern, or
    references that double at every level, would block everyone.
    """
    required, properties = schema.get("required", []), schema["properties"]
    schema.clear()
    schema |= {
        "type": "object",
        "properties": {name: _type_schema(part) for name, part in properties.items()},
        "required": list(dict.fromkeys(required)),
    }


def _type_schema(part: Any) -> dict[str, Any]:
    declared: Any = as_object(part).get("type")
    names = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    is_known = bool(names) and all(name in _JSON_TYPES for name in names)
    return {"type": [name for name in _JSON_TYPES if name in names]} if is_known else {}
