"""The client's tools for an agent: which of them it gets, under which names, and which of its calls are theirs.

Agents start MCP servers themselves, and stdio is the one transport that all of them support. So an agent starts `tool_relay.py`, which
connects it to a socket of this process. `tool_server.py` answers there.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ambient_runner.bridges.acp.tool_server import SERVER_NAME, ToolServer
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
from ambient_runner.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ambient_runner.bridges.toolkit.pending_calls import PendingCalls
    from ambient_runner.protocol.events import Tool

__all__ = [
    "RELAY_PROGRAM",
    "SERVER_NAME",
    "ToolRelay",
    "build_toolbox",
    "is_reserved_server",
    "offered_name",
    "offered_tools",
]

RELAY_PROGRAM = Path(__file__).resolve().with_name("tool_relay.py")
"""The program that agents start. A sandbox must let them read it."""

_REPLACED_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_LENGTH = 48
"""Providers allow 64 characters, and agents add the name of the server."""
_DIGEST_LENGTH = 8
_MCP_PREFIX = "mcp_"
"""Prefix of the names that agents give to tools of MCP servers. A client's tool must not look like another server's."""
_TOOL_KINDS = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
)
"""Kinds of tools in ACP. A tool of an agent that does not report its name is known to clients by its kind."""
_MAX_PATH_BYTES = 107
"""Longest path of a unix socket."""
_MAX_SEEN_CALLS = 1000


def build_toolbox(tools: Sequence[Tool], native: Iterable[str] = ()) -> Toolbox:
    """Separate the client's tools from the agent's, whose names are `native` or kinds of tools.

    Also left out are tools that would have the same name for the agent, or that look like a tool of an MCP server.
    """
    counts = Counter(offered_name(name) for name in {tool.name for tool in tools})
    unusable = [name for name, count in counts.items() if count > 1 or not name or name.startswith(_MCP_PREFIX)]
    return Toolbox(tools, {*native, *_TOOL_KINDS, *unusable}, normalize=offered_name)


def offered_tools(tools: Sequence[Tool], native: Iterable[str] = ()) -> list[Tool]:
    """Return the client's tools that can be offered to the agent."""
    return list(build_toolbox(tools, native).client_tools.values())


def offered_name(name: str) -> str:
    """Return the name under which a tool is offered: with characters and of a length that all agents accept."""
    valid = _REPLACED_CHARS.sub("_", name)
    if len(valid) <= _MAX_NAME_LENGTH:
        return valid
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{valid[: _MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"


def is_reserved_server(name: str) -> bool:
    """Return True if tools of an MCP server with this name could be taken for the client's, which need no permission."""
    return f"{_REPLACED_CHARS.sub('_', name)}_".lower().startswith(f"{SERVER_NAME}_")


class _OwnCall(NamedTuple):
    """A call of a client's tool, as the agent has first reported it."""

    tool: Tool
    title: Any
    kind: Any


class ToolRelay:
    """Offers the client's tools to one agent process, through a socket in `directory`, which only this user may enter.

    `start` it before the process, then give it `mcp_server()`; `aclose` it when the process has ended.
    """

    def __init__(self, tools: Sequence[Tool], calls: PendingCalls, directory: Path) -> None:
        self.socket_path = directory / "tools.sock"
        self._tools = {offered_name(tool.name): tool for tool in tools}
        self._server = ToolServer(self._tools, calls, self.socket_path)
        self._seen_calls: OrderedDict[str, _OwnCall | None] = OrderedDict()
        """The calls that were reported, by their ids; None for those of other tools."""

    async def start(self) -> None:
        """Accept connections. Raises: BridgeError if the path of the directory is too long, OSError."""
        if len(bytes(self.socket_path)) > _MAX_PATH_BYTES:
            raise BridgeError(f"The path {self.socket_path} is too long for a socket. Set TMPDIR to a shorter one.")
        self.socket_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._server.start()
        self.socket_path.chmod(0o600)

    async def aclose(self) -> None:
        """Close all connections, withdraw the calls that wait, and remove the socket. Safe to call twice."""
        await self._server.aclose()

    def mcp_server(self) -> dict[str, Any]:
        """Return the server for `mcpServers` of an ACP session."""
        arguments = ["-I", "-S", str(RELAY_PROGRAM), str(self.socket_path)]
        return {"name": SERVER_NAME, "command": sys.executable, "args": arguments, "env": []}

    def own_tool(self, tool_call: Mapping[str, Any]) -> Tool | None:
        """Return the client's tool that an update or the `toolCall` of a permission request is about; None for any other tool.

        Every update must be passed when it arrives: some agents name the tool in the first one only. What a model can choose, such as the
        title of a command, does not make a call one of ours.
        """
        call_id, update = str(tool_call.get("toolCallId")), tool_call.get("sessionUpdate")
        is_first, known = call_id not in self._seen_calls, self._seen_calls.get(call_id)
        tool = self._tools.get(_reported_name(tool_call, call_id, is_first=is_first))
        if tool is not None:
            self._seen_calls[call_id] = _OwnCall(tool, tool_call.get("title"), tool_call.get("kind"))
        elif known is not None and _is_same_call(tool_call, known):
            tool = known.tool
        elif update == "tool_call" or (update and is_first):  # Models sometimes reuse ids of calls.
            self._seen_calls[call_id] = None
        if len(self._seen_calls) > _MAX_SEEN_CALLS:
            self._seen_calls.popitem(last=False)
        return tool


def _is_same_call(tool_call: Mapping[str, Any], own: _OwnCall) -> bool:
    """Return True if an update says nothing about its call that contradicts the first one."""
    if "name" in tool_call or tool_call.get("kind", own.kind) != own.kind:
        return False
    return tool_call["title"] == own.title if "title" in tool_call else "rawInput" not in tool_call


def _reported_name(tool_call: Mapping[str, Any], call_id: str, *, is_first: bool) -> str:
    """Return the name of our server's tool that is called, as one of the agents reports it; empty for any other tool."""
    return (
        _name_for_claude(tool_call)
        or _name_for_codex(tool_call)
        or _name_for_gemini(tool_call, call_id)
        or (_name_for_opencode(tool_call) if is_first else "")
    )


def _name_for_claude(tool_call: Mapping[str, Any]) -> str:
    """Claude Code: `mcp__ambient__x` as the name, which also stands in `_meta`."""
    meta = as_object(as_object(tool_call.get("_meta")).get("claudeCode"))
    server = as_object(meta.get("mcpServer")).get("name", SERVER_NAME)
    names = {str(source[key]) for source, key in ((tool_call, "name"), (meta, "toolName")) if key in source}
    return _without_prefix(names.pop(), f"mcp__{SERVER_NAME}__") if len(names) == 1 and server == SERVER_NAME else ""


def _name_for_codex(tool_call: Mapping[str, Any]) -> str:
    """Codex: `mcp.ambient.x` as the title, the server and the tool in `rawInput`, and a mark in `_meta`."""
    match tool_call:
        case {
            "title": str(title),
            "rawInput": {"server": str(server), "tool": str(tool)},
            "_meta": {"is_mcp_tool_call": True},
        } if server == SERVER_NAME and title == f"mcp.{SERVER_NAME}.{tool}":
            return tool
        case _:
            return ""


def _name_for_gemini(tool_call: Mapping[str, Any], call_id: str) -> str:
    """Gemini: `x (ambient MCP Server)` as the title, and the name of the function as the beginning of the id."""
    match tool_call:
        case {"title": str(title), "kind": "other"} if "rawInput" not in tool_call:
            name = title.removesuffix(f" ({SERVER_NAME} MCP Server)")
            is_own = name != title and call_id.startswith(f"mcp_{SERVER_NAME}_{name}__")
            return name if is_own else ""
        case _:
            return ""


def _name_for_opencode(tool_call: Mapping[str, Any]) -> str:
    """OpenCode: `ambient_x` as the title of the first update. Later titles of other tools are chosen by the model."""
    match tool_call:
        case {
            "sessionUpdate": "tool_call",
            "title": str(title),
            "kind": "other",
            "status": "pending",
            "rawInput": {},
        } if "name" not in tool_call and not tool_call.get("_meta"):
            return _without_prefix(title, f"{SERVER_NAME}_")
        case _:
            return ""


def _without_prefix(name: str, prefix: str) -> str:
    return name[len(prefix) :] if name.startswith(prefix) else ""
