"""A server of a model for tests of the gateway: every request is handed to the test, which decides what is answered and when."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import h11

from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

__all__ = ["Exchange", "HttpPeer", "Origin", "open_origin"]


class HttpPeer:
    """HTTP over a connection, as the client or the server, in steps that a test takes one by one."""

    def __init__(self, role: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(role)
        self.reader = reader
        self.writer = writer

    async def receive(self) -> Any:
        with unless_hung():
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(1 << 16))
        return event

    async def receive_body(self) -> bytes:
        body = b""
        while isinstance(event := await self.receive(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        return body

    async def send(self, *events: Any) -> None:
        for event in events:
            self.writer.write(self.http.send(event) or b"")
        with unless_hung():
            await self.writer.drain()

    async def send_data(self, data: bytes) -> None:
        await self.send(h11.Data(data=data))

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


class Exchange(HttpPeer):
    """One request that has arrived at the origin."""

    request: h11.Request

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.request.headers}

    async def respond(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        length = [("content-length", str(len(body)))]
        await self.send(h11.Response(status_code=status, headers=[*named, *length]), h11.Data(data=body))
        await self.send(h11.EndOfMessage())
        if self.http.their_state is h11.DONE:
            self.http.start_next_cycle()


class Origin:
    """Its requests, in the order of their arrival."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: list[asyncio.StreamWriter] = []
        self._arrived: asyncio.Queue[Exchange] = asyncio.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self._arrived.put_nowait(Exchange(h11.SERVER, reader, writer))

    async def next_request(self, last: Exchange | None = None) -> Exchange:
        """Wait for the next request: on a new connection, or on that of an earlier one."""
        with unless_hung():
            exchange = last or await self._arrived.get()
        exchange.request = await exchange.receive()
        assert isinstance(exchange.request, h11.Request)
        return exchange


@asynccontextmanager
async def open_origin(ssl_context: ssl.SSLContext | None = None) -> AsyncGenerator[Origin]:
    origin = Origin()
    server = await asyncio.start_server(origin.accept, "127.0.0.1", 0, ssl=ssl_context)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()
        for writer in origin.connections:
            writer.transport.abort()
        await asyncio.sleep(0)
