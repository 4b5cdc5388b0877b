"""The client's tools as an MCP server on a unix socket. `tool_relay.py` connects an agent to it, `client_tools.py` decides what it offers.

A tool is not executed here. Its call waits, the run ends with the call open, and the next run brings the result.
"""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object, parse_json_or_text
from ambient_runner.bridges.toolkit.mcp_content import to_mcp_blocks
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema
from ambient_runner.processes.json_rpc import JsonRpcPeer
from ambient_runner.processes.json_rpc_messages import INVALID_PARAMS, INVALID_REQUEST, Notification, Request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ambient_runner.bridges.toolkit.pending_calls import PendingCall, PendingCalls
    from ambient_runner.bridges.toolkit.turns import TurnToolResult
    from ambient_runner.processes.json_rpc_messages import Message, RequestId
    from ambient_runner.protocol.events import Tool

__all__ = ["SERVER_NAME", "ToolServer"]

SERVER_NAME = "ambient"

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of MCP that begin with `initialize`, the newest first. What is used here is the same in all of them."""
_METHODS = ("initialize", "ping", "tools/list", "tools/call")
_PROGRESS_INTERVAL = 15.0
"""Seconds between progress notifications of a waiting call. OpenCode gives up one that shows no progress for a minute."""
_MAX_CONNECTIONS = 32
_MAX_OPEN_CALLS = 128
"""Limits of one agent process, so that it cannot exhaust the server."""
_LIMIT_REACHED = "Too many calls are waiting already. Wait for their results first."


class ToolServer:
    """An MCP server with these tools, by the names under which they are offered. `start` it, then `aclose` it."""

    def __init__(self, tools: Mapping[str, Tool], calls: PendingCalls, path: Path) -> None:
        self.tools = tools
        self.calls = calls
        self._path = path
        self._connections: set[_Connection] = set()
        self._all_closed = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Accept connections. Raises: OSError."""
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(self), self._path)

    async def aclose(self) -> None:
        """Close all connections and withdraw their calls. Safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        self._path.unlink(missing_ok=True)
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            self._all_closed.clear()
            await self._all_closed.wait()
        await server.wait_closed()

    def add_connection(self, connection: _Connection) -> bool:
        """Return False for a connection that is not accepted: there are too many, or the server ends."""
        self._connections.add(connection)
        return self._server is not None and len(self._connections) <= _MAX_CONNECTIONS

    def remove_connection(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._all_closed.set()


class _Connection(asyncio.Protocol):
    """One MCP client: usually one per session of the agent, sometimes several."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._open: dict[RequestId, tuple[PendingCall, Any]] = {}
        """The calls that wait, by the id of their request, each with its progress token or None."""
        self._is_gemini = False
        self._progress = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._peer = JsonRpcPeer(self._write, methods=_METHODS, on_message=self._handle_message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.add_connection(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._peer.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.close()
        for call, _ in self._open.values():
            self._server.calls.withdraw_call(call)
        self._open.clear()
        self._schedule_progress()
        self._server.remove_connection(self)

    def pause_writing(self) -> None:
        """Read no further requests of a client that does not read the responses."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _handle_message(self, message: Message) -> None:
        match message:
            case Notification(method="notifications/cancelled", params=params):
                self._cancel_call(as_object(params).get("requestId"))
            case Request(id=request_id, method="tools/call", params=params):
                self._begin_call(request_id, as_object(params))
            case Request(id=request_id, method=method, params=params):
                self._peer.respond(request_id, self._result_of(method, as_object(params)))
            case _:
                pass

    def _result_of(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                self._is_gemini = str(as_object(params.get("clientInfo")).get("name")).startswith("gemini")
                return _server_description(params.get("protocolVersion"))
            case "tools/list":
                return {"tools": [_describe_tool(name, tool) for name, tool in self._server.tools.items()]}
            case _:
                return {}

    def _begin_call(self, request_id: RequestId, params: Mapping[str, Any]) -> None:
        """Let a call wait for the client. Its request is answered when the result is there."""
        name = params.get("name")
        tool = self._server.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            self._peer.respond_error(request_id, INVALID_PARAMS, "There is no such tool")
        elif request_id in self._open:
            self._peer.respond_error(request_id, INVALID_REQUEST, "Another call has this id")
        elif len(self._server.calls.open_calls) >= _MAX_OPEN_CALLS:
            self._peer.respond(request_id, _tool_result(_LIMIT_REACHED, is_error=True))
        else:
            meta = as_object(params.get("_meta"))
            call = self._server.calls.add_call(
                tool.name, as_object(params.get("arguments")), agent_id=_agent_call_id(meta)
            )
            self._open[request_id] = (call, meta.get("progressToken"))
            call.result.add_done_callback(partial(self._end_call, request_id, call))
            self._schedule_progress()

    def _end_call(self, request_id: RequestId, call: PendingCall, result: asyncio.Future[TurnToolResult]) -> None:
        """Answer the request of a call that has its result. One that was cancelled gets no answer."""
        self._server.calls.withdraw_call(call)
        self._open.pop(request_id, None)
        self._schedule_progress()
        if not result.cancelled():
            answer = _tool_result(result.result().content, is_error=result.result().is_error)
            self._peer.respond(request_id, _with_structured_content(answer) if self._is_gemini else answer)

    def _cancel_call(self, request_id: Any) -> None:
        waiting = self._open.get(request_id) if isinstance(request_id, int | float | str) else None
        if waiting is not None:
            self._server.calls.withdraw_call(waiting[0])

    def _schedule_progress(self) -> None:
        """Report progress while a call waits whose client asked for it, so that it does not give up."""
        is_needed = any(token is not None for _, token in self._open.values())
        if self._timer is None and is_needed:
            self._timer = asyncio.get_running_loop().call_later(_PROGRESS_INTERVAL, self._report_progress)
        elif self._timer is not None and not is_needed:
            self._timer.cancel()
            self._timer = None

    def _report_progress(self) -> None:
        self._timer = None
        self._progress += 1
        for _, token in self._open.values():
            if token is not None:
                self._peer.notify("notifications/progress", {"progressToken": token, "progress": self._progress})
        self._schedule_progress()


def _server_description(requested: Any) -> dict[str, Any]:
    return {
        "protocolVersion": requested if requested in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER_NAME, "version": version("ambient-runner")},
    }


def _describe_tool(name: str, tool: Tool) -> dict[str, Any]:
    return {
        "name": name,
        "description": tool.description or tool.name,
        "inputSchema": clean_schema(tool.parameters, dialect="json"),
    }


def _tool_result(content: Any, *, is_error: bool) -> dict[str, Any]:
    return {"content": to_mcp_blocks(content), "isError": is_error}


def _with_structured_content(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result for Gemini, which takes a first text that is JSON for structured content, and refuses all but an object there."""
    text = str(result["content"][0].get("text", ""))
    value = parse_json_or_text(text)
    is_accepted = value is text or isinstance(value, dict)
    return result if is_accepted else {**result, "structuredContent": {"result": value}}


def _agent_call_id(meta: Mapping[str, Any]) -> str | None:
    """Return the agent's id of the call: Claude Code and Codex put it into the request, the others do not."""
    call_id = meta.get("claudecode/toolUseId", meta.get("callId"))
    return call_id if isinstance(call_id, str) else None
