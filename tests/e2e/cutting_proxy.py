"""A TCP proxy that cuts connections after a random number of bytes. Its address stays while the server behind it is killed and started."""

from __future__ import annotations

import math
import random
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketAttribute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import SocketStream

__all__ = ["CuttingProxy"]

_STREAM = b"GET /threads/"
_REQUEST = (b"GET ", b"POST ", b"PATCH ")
_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets the connection."""


class CuttingProxy:
    """`cuts` counts the event streams that were cut, `lost` the other requests or their responses. `connect_to` names the server."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._port: int | None = None
        self._is_up = anyio.Event()
        self._moved = anyio.Event()
        self._is_refusing = False
        self.cuts = 0
        self.lost = 0

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        """Listen on a free port. Yields the address."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, self._serve)
            yield f"http://127.0.0.1:{port}"
            tasks.cancel_scope.cancel()

    def connect_to(self, port: int) -> None:
        self._port = port
        self._is_up.set()

    def disconnect(self) -> None:
        """The server is about to go. The next connection is refused, further ones wait for the next server."""
        self._port, self._is_up, self._is_refusing = None, anyio.Event(), True

    async def reached(self, cuts: int) -> None:
        """Wait for so many cuts."""
        while self.cuts < cuts:
            await self._moved.wait()

    async def _serve(self, client: SocketStream) -> None:
        async with client:
            if self._is_refusing:
                self._is_refusing = False
                return _reset(client)
            with suppress(OSError, anyio.BrokenResourceError):
                async with await anyio.connect_tcp("127.0.0.1", await self._find_port()) as server:
                    return await self._relay(client, server)

    async def _find_port(self) -> int:
        """Return the port of the server, once there is one."""
        while self._port is None:
            await self._is_up.wait()
        return self._port

    async def _relay(self, client: SocketStream, server: SocketStream) -> None:
        relay = _Relay(self._dice)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.pump_requests, client, server, tasks.cancel_scope)
            await relay.pump_responses(server, client)
            tasks.cancel_scope.cancel()
        if relay.left <= 0:
            self._count_cut(is_stream=relay.is_stream)
            if self._dice.random() < 0.5:
                _reset(client)

    def _count_cut(self, *, is_stream: bool) -> None:
        self.cuts += is_stream
        self.lost += not is_stream
        self._moved.set()
        self._moved = anyio.Event()


class _Relay:
    """One connection. `left` is the number of bytes that the client may still get in response to its newest request."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.left = math.inf
        self.is_stream = False

    async def pump_requests(self, client: SocketStream, server: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in client:
                if chunk.startswith(_REQUEST):
                    self.is_stream = chunk.startswith(_STREAM)
                    self.left = self._draw_stream_bytes() if self.is_stream else self._draw_response_bytes()
                if self.left <= 0:
                    break
                await server.send(chunk)
        scope.cancel()

    async def pump_responses(self, server: SocketStream, client: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in server:
                await client.send(chunk[: int(min(self.left, len(chunk)))])
                self.left -= len(chunk)
                if self.left <= 0:
                    return

    def _draw_stream_bytes(self) -> float:
        """Most streams are cut soon, some within the head. A few last for the largest snapshot, or nothing would ever arrive."""
        low, high = (1, 10_000) if self._dice.random() < 0.85 else (1_000, 400_000)
        return round(math.exp(self._dice.uniform(math.log(low), math.log(high))))

    def _draw_response_bytes(self) -> float:
        """One of five is lost: the request itself, or a part of the response. A store gives up after eight attempts."""
        return self._dice.choice([0, self._dice.randrange(1, 300), *[math.inf] * 8])


def _reset(stream: SocketStream) -> None:
    raw = stream.extra(SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
