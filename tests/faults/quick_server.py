"""Servers within the test's own process, with limits that a test can wait for, and clients that send them bytes as they are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import Settings
from ambient_runner.server.app import create_app
from ambient_runner.server.connection_limits import ConnectionLimits, LimitedHttpProtocol
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from fastapi import FastAPI
    from starlette.types import ASGIApp
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState

__all__ = ["HOST", "SETTINGS", "Connection", "QuickLimits", "our_app", "served"]

SETTINGS = Settings(store="memory://")
HOST = b"Host: 127.0.0.1\r\n"


class QuickLimits(LimitedHttpProtocol):
    """The limits of `ambient serve`, with times that a test can wait for."""

    limits = ConnectionLimits(first_byte_timeout=0.2, headers_timeout=0.3, unread_body_timeout=0.3, slow_reader=0.3)


class Connection:
    """A client that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_to_end(self) -> bytes:
        """Return all that the server sends until it closes the connection."""
        data = b""
        try:
            while part := await self.reader.read(1 << 16):
                data += part
        except ConnectionError:
            pass
        return data

    async def read_response(self) -> tuple[int, bytes]:
        """Return status and body of one response with a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = [line.lower() for line in head.split(b"\r\n")]
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        return int(head.split(b" ")[1]), await self.reader.readexactly(length)


class Served:
    """A server on a port of its own."""

    def __init__(self, port: int, state: ServerState) -> None:
        self._port = port
        self._state = state

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def wait_until_closed(self) -> None:
        """Return when the server has no connection."""
        while self._state.connections:
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()

    async def wait_for_all_timers(self) -> None:
        """Return after a time in which every timer of a connection has ended."""
        async with self.connect() as silent:
            assert await silent.read_to_end() == b""
        async with self.connect() as half:
            await half.send(b"GET ")
            await half.read_to_end()


@asynccontextmanager
async def served(
    app: ASGIApp,
    protocol: type[HttpToolsProtocol] = QuickLimits,
    *,
    keep_alive: int = int(HANG_SECONDS),
    send_buffer: int | None = None,
) -> AsyncGenerator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    config = uvicorn.Config(
        app, http=protocol, log_config=None, loop="asyncio", ws="none", timeout_keep_alive=keep_alive
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        with unless_hung():
            yield Served(listener.getsockname()[1], server.server_state)
    finally:
        server.should_exit = True
        await task
        listener.close()


def our_app() -> FastAPI:
    return create_app(SETTINGS, {"demo": DemoBridge()})
