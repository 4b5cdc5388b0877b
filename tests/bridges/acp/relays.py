"""A relay of the client's tools with a few of them, and MCP clients that talk to it line by line."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.client_tools import ToolRelay
from ambient_runner.bridges.toolkit.pending_calls import PendingCall, PendingCalls
from ambient_runner.bridges.toolkit.turns import TurnToolResult
from ambient_runner.protocol.events import Content, Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["PAINT", "PICK", "LineClient", "RelayWorld", "open_handles", "relay_world"]

PICK = Tool(
    name="pick_number",
    description="Ask the page for a number",
    parameters={"type": "object", "properties": {"max": {"type": "integer"}}, "required": ["max"], "$id": "secret"},
)
PAINT = Tool(name="Paint it!", description="")


def open_handles() -> int:
    """Return the number of open files, pipes and sockets of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


class RelayWorld:
    """The server's side: the relay, and the calls that arrive."""

    def __init__(self, directory: Path) -> None:
        self.arrived: asyncio.Queue[PendingCall] = asyncio.Queue()
        self.calls = PendingCalls(self.arrived.put_nowait)
        self.relay = ToolRelay([PICK, PAINT], self.calls, directory)

    @property
    def command(self) -> list[str]:
        server = self.relay.mcp_server()
        return [server["command"], *server["args"]]

    def answer(self, call: PendingCall, content: Content, *, is_error: bool = False) -> None:
        """Answer a call as a run does that has found out which one it is."""
        call.client_id = f"client-{id(call)}"
        result = TurnToolResult(call_id=call.client_id, name=call.tool, content=content, is_error=is_error)
        self.calls.deliver_results([result])


@asynccontextmanager
async def relay_world() -> AsyncGenerator[RelayWorld, None]:
    """Yield a started relay; leaving the block ends it."""
    with tempfile.TemporaryDirectory(prefix="relay-") as directory:
        world = RelayWorld(Path(directory) / "private")
        await world.relay.start()
        try:
            yield world
        finally:
            await world.relay.aclose()


class LineClient:
    """An MCP client that writes and reads lines of JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, params: Any = None, **members: Any) -> None:
        line = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **members}
        self.writer.write(json.dumps(line).encode() + b"\n")

    def call(self, request_id: Any, tool: str = "pick_number", **params: Any) -> None:
        self.send("tools/call", {"name": tool, "arguments": {"max": 10}, **params}, id=request_id)

    async def receive(self) -> dict[str, Any]:
        """Return the next message."""
        return json.loads(await self.reader.readline())

    async def request(self, method: str, params: Any = None, *, request_id: Any = 1) -> Any:
        """Return the result of a request whose response comes next."""
        self.send(method, params, id=request_id)
        response = await self.receive()
        assert response["id"] == request_id
        return response["result"]
