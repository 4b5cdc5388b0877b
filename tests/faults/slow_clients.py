"""Clients that read slowly or not at all: plain sockets with a small receive buffer, so that the server has to wait for them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.e2e.sse import Stream, request_head

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

__all__ = ["open_slow_stream", "open_stalled_socket"]

_RECEIVE_BUFFER = 4096
"""Bytes that the kernel accepts for a client that does not read."""
_READ_AHEAD = 4096
"""Bytes that the reader takes from the kernel before they are asked for, and as many again."""


def open_stalled_socket(url: str, path: str, headers: Mapping[str, str] | None = None) -> socket.socket:
    """Return a connection that has sent its request for a stream. Nothing reads the answer until the caller does."""
    address = urlsplit(url)
    assert address.hostname is not None
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        client.connect((address.hostname, address.port))
        client.sendall(
            request_head("GET", path, {"Host": address.netloc, "Accept": "text/event-stream", **(headers or {})})
        )
    except BaseException:
        client.close()
        raise
    return client


@asynccontextmanager
async def open_slow_stream(url: str, path: str, headers: Mapping[str, str] | None = None) -> AsyncGenerator[Stream]:
    """Open a stream of which hardly anything is read before it is asked for."""
    client = open_stalled_socket(url, path, headers)
    reader, writer = await asyncio.open_connection(sock=client, limit=_READ_AHEAD)
    stream = Stream(reader, writer)
    try:
        await stream.read_head()
        yield stream
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
