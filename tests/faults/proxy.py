"""A TCP proxy that delays the responses of a server, cuts them after a number of bytes, or closes one direction only."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["ConnectionFault", "FaultProxy"]

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class ConnectionFault:
    """The fault of one connection."""

    cut_after: float = math.inf
    """Bytes of the response that reach the client."""
    how: Literal["reset", "close", "half-close"] = "reset"
    """The end of a cut connection. After a half-close the client gets an end of file and the server does not notice."""
    delay: float = 0.0  # seconds before every chunk of the response


class FaultProxy:
    """Relays connections to a port of this machine. `fault` applies to those that begin from now on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.fault = ConnectionFault()
        self.cuts = 0
        self._relays: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        """Listen on a free port. Yields the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for relay in self._relays:
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await self._relay(reader, writer, self.fault)
        finally:
            self._relays.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: ConnectionFault) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self.port)
        requests = asyncio.ensure_future(_pump(reader, downstream))
        try:
            if await _pump_with_fault(upstream, writer, fault):
                self.cuts += 1
                await _end(writer, fault, requests)
        finally:
            downstream.transport.abort()
            requests.cancel()
            await asyncio.gather(requests, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


async def _pump_with_fault(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: ConnectionFault) -> bool:
    """Relay a response. Return True if it was cut."""
    left = fault.cut_after
    while left > 0 and (chunk := await reader.read(_CHUNK)):
        await asyncio.sleep(fault.delay)
        writer.write(chunk[: int(min(left, len(chunk)))])
        await writer.drain()
        left -= len(chunk)
    return left <= 0


async def _end(writer: asyncio.StreamWriter, fault: ConnectionFault, requests: asyncio.Future[None]) -> None:
    if fault.how == "half-close":
        writer.write_eof()
        await asyncio.wait([requests])  # the connection to the server stays until the client closes its own
    elif fault.how == "close":
        writer.close()
        await writer.wait_closed()
