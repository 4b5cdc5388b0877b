"""One side of a gateway: HTTP/1.1 events over a pair of asyncio streams, and bytes in both directions for a tunnel."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GatewayLimits", "HttpStream", "relay_bytes"]

_READ_BYTES = 1 << 16
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayLimits:
    """Bounds of a gateway. Times are in seconds."""

    max_connections: int = 128
    max_header_bytes: int = 1 << 16
    max_discarded_bytes: int = 1 << 20
    """The body of a refused request is read up to this size, so that the connection can go on."""
    connect_timeout: float = 30.0
    keep_alive: float = 300.0
    """A connection without a request is closed after this time."""
    reuse: float = 15.0
    """An idle connection to the provider is not used again after this time: the provider may be closing it."""
    idle_timeout: float = 1200.0
    """Without any data, a request, response or tunnel ends after this time. Models think for minutes."""


class HttpStream:
    """HTTP events over a connection, as client or server. Everything raises OSError, TimeoutError or h11's protocol errors."""

    def __init__(
        self,
        role: type[h11.CLIENT] | type[h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: GatewayLimits,
    ) -> None:
        self.http = h11.Connection(role, limits.max_header_bytes)
        self.reader = reader
        self.writer = writer
        self._idle_timeout = limits.idle_timeout
        self._idle_since = asyncio.get_running_loop().time()

    async def receive(self, timeout: float | None = None) -> h11.Event | type[h11.PAUSED]:
        """Return the next event. `timeout` is for its beginning and every block of data."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            await self.receive_block(self._idle_timeout if timeout is None else timeout)
        return event  # pyright: ignore[reportReturnType] NEED_DATA is excluded above

    async def receive_block(self, timeout: float | None) -> bytes:
        """Read one block of data, which becomes part of an event. Return it; it is empty at the end of the stream."""
        async with asyncio.timeout(timeout):
            data = await self.reader.read(_READ_BYTES)
        self.http.receive_data(data)
        return data

    async def send(self, *events: h11.Event) -> None:
        """Send events, each with its own bytes, and wait while the other side does not read."""
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        async with asyncio.timeout(self._idle_timeout):
            await self.writer.drain()

    def start_next_cycle(self) -> bool:
        """Get ready for the next request and its response. Return False if the connection cannot be used for another one."""
        if self.http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self.http.start_next_cycle()
        self._idle_since = asyncio.get_running_loop().time()
        return True

    def is_reusable(self, seconds: float) -> bool:
        """Return True if a request can be sent now: the last one is complete, and the connection idle for less than that."""
        is_open = not (self.reader.at_eof() or self.writer.is_closing())
        idle = asyncio.get_running_loop().time() - self._idle_since
        return is_open and self.http.our_state is h11.IDLE and idle < seconds

    def abort(self) -> None:
        """Close the connection at once. What waits for it sees its end."""
        self.writer.transport.abort()

    async def aclose(self) -> None:
        """Close the connection after what was written, or at once if the other side does not read it."""
        self.writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                with suppress(OSError):
                    await self.writer.wait_closed()
        except TimeoutError:
            pass
        finally:
            self.abort()


async def relay_bytes(
    left: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    right: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    idle_timeout: float,
) -> None:
    """Pass bytes both ways until both sides have ended, one has failed, or nothing has passed for too long."""
    relay = _Relay((left[1], right[1]), idle_timeout)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(relay.pass_on(left[0], right[1]))
        tasks.create_task(relay.pass_on(right[0], left[1]))


class _Relay:
    """The two directions of a tunnel, which share one idle time."""

    def __init__(self, writers: Sequence[asyncio.StreamWriter], idle_timeout: float) -> None:
        self._writers = writers
        self._idle_timeout = idle_timeout
        self._last_data = asyncio.get_running_loop().time()

    async def pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await self._read(source):
                sink.write(data)
                async with asyncio.timeout(self._idle_timeout):
                    await sink.drain()
            sink.write_eof()
        except (OSError, TimeoutError):
            for writer in self._writers:
                writer.transport.abort()

    async def _read(self, source: asyncio.StreamReader) -> bytes:
        """Return the next block. Raises: TimeoutError if neither direction had one for too long."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._last_data + self._idle_timeout):
                    data = await source.read(_READ_BYTES)
                self._last_data = loop.time()
                return data
            if loop.time() >= self._last_data + self._idle_timeout:
                raise TimeoutError
