"""The `mcp` package on both of its lines: 2.x, and 1.x, which other packages such as langchain-mcp-adapters still need.

`status.py` probes servers with it, over the transports of `stdio_client.py` and `http_client.py`.
"""

from __future__ import annotations

import importlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import mcp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

__all__ = ["McpClient", "McpError", "httpx", "open_client", "parse_message"]

_sdk: Any = mcp
_HAS_CLIENT = hasattr(mcp, "Client")
"""True for 2.x, whose client knows the protocol with and without a handshake."""
McpError: type[Exception] = _sdk.MCPError if _HAS_CLIENT else _sdk.McpError
httpx: Any = importlib.import_module("httpx2" if _HAS_CLIENT else "httpx")
"""The HTTP library that this line of the package uses."""


@dataclass(frozen=True, kw_only=True, slots=True)
class McpClient:
    """A connected client: the server's version, and the session or client of the package."""

    server_version: str
    session: Any

    async def list_tools(self, cursor: str | None) -> tuple[list[Any], str | None]:
        """Return one page of the server's tools and the cursor of the next; None after the last page."""
        page = await self.session.list_tools(cursor=cursor)
        return page.tools, page.next_cursor if _HAS_CLIENT else page.nextCursor


def open_client(
    transport: AbstractAsyncContextManager[Any], read_timeout: float
) -> AbstractAsyncContextManager[McpClient]:
    """Connect to a server over the transport. `read_timeout` is in seconds."""
    return _open_client(transport, read_timeout) if _HAS_CLIENT else _open_session(transport, read_timeout)


def parse_message(line: bytes) -> Any:
    """Return the JSON-RPC message of a line. Raises: ValueError."""
    if _HAS_CLIENT:
        return importlib.import_module("mcp_types").jsonrpc_message_adapter.validate_json(line, by_name=False)
    return importlib.import_module("mcp.types").JSONRPCMessage.model_validate_json(line)


@asynccontextmanager
async def _open_client(transport: Any, read_timeout: float) -> AsyncGenerator[McpClient, None]:
    async with _sdk.Client(transport, read_timeout_seconds=read_timeout) as client:
        info = client.server_info
        yield McpClient(server_version=info.version if info else "", session=client)


@asynccontextmanager
async def _open_session(transport: Any, read_timeout: float) -> AsyncGenerator[McpClient, None]:
    timeout = timedelta(seconds=read_timeout)
    async with (
        transport as (read, write, *_),
        _sdk.ClientSession(read, write, timeout, message_handler=_raise_transport_error) as session,
    ):
        initialized = await session.initialize()
        yield McpClient(server_version=initialized.serverInfo.version, session=session)


async def _raise_transport_error(message: Any) -> None:
    """Raise an error of the transport, which ends the session. By default 1.x ignores it and waits for the response until the timeout."""
    if isinstance(message, Exception):
        raise message
