"""Tools for Claude besides the CLI's own: the developer's and the client's, as one MCP server in this process.

A tool of the client is not executed here. Its call waits, the run ends with the call open, and the next run brings the result.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server

from ambient_runner.bridges.claude.messages import to_mcp_blocks
from ambient_runner.bridges.claude.state_tool import STATE_TOOL
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox, callable_tools, clean_schema
from ambient_runner.runs.run import enter_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from claude_agent_sdk import McpSdkServerConfig

    from ambient_runner.bridges.claude.translate import ToolCallRecord
    from ambient_runner.bridges.toolkit.turns import TurnToolResult
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Run

__all__ = [
    "CLI_TOOLS",
    "SERVER_NAME",
    "TOOL_PREFIX",
    "PendingCall",
    "PendingCalls",
    "build_toolbox",
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


@dataclass(kw_only=True, slots=True, eq=False)
class PendingCall:
    """A call of a client's tool that waits for its result."""

    tool: str
    arguments: dict[str, Any]
    result: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    client_id: str | None = None
    """The call's id for clients, once `PendingCalls.match_records` has found it."""


class PendingCalls:
    """The calls of client tools that wait in one process. `on_call` is notified of each new one."""

    def __init__(self, on_call: Callable[[PendingCall], None]) -> None:
        self._on_call = on_call
        self._pending: list[PendingCall] = []
        self._results: dict[str, TurnToolResult] = {}

    @property
    def open_calls(self) -> list[PendingCall]:
        return [call for call in self._pending if not call.result.done()]

    async def wait_for_result(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result once the client has sent it. The MCP server calls this for the CLI."""
        call = PendingCall(tool=tool, arguments=arguments)
        self._pending.append(call)
        self._on_call(call)
        try:
            return await call.result
        finally:
            self._pending.remove(call)

    def match_records(self, records: Mapping[str, ToolCallRecord]) -> None:
        """Find the client id of each waiting call: by tool and arguments, then by tool alone, in the order of the records.

        The CLI makes some calls one after another, so the result of one may arrive before the call waits.
        """
        matched = {call.client_id for call in self._pending}
        free = {record.client_id: record for record in records.values() if record.client_id not in matched}
        for exact in (True, False):
            for call in self.open_calls:
                if call.client_id is None:
                    call.client_id = next(
                        (client_id for client_id, record in free.items() if _is_match(call, record, exact=exact)), None
                    )
                    free.pop(call.client_id or "", None)
        self._resolve_calls()

    def deliver_results(self, results: Iterable[TurnToolResult]) -> None:
        """Resolve the calls that wait for these results, now or when they begin to wait."""
        self._results |= {result.call_id: result for result in results}
        self._resolve_calls()

    def _resolve_calls(self) -> None:
        for call in self.open_calls:
            result = self._results.pop(call.client_id or "", None)
            if result is not None:
                call.result.set_result({"content": to_mcp_blocks(result.content), "is_error": result.is_error})


def _is_match(call: PendingCall, record: ToolCallRecord, *, exact: bool) -> bool:
    return client_tool_name(record.name) == call.tool and (not exact or record.input == call.arguments)


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
        return await calls.wait_for_result(tool.name, cast("dict[str, Any]", arguments))

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
