"""M10: connections that send nothing, half a request, or headers without end. They are closed, and streams are not."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import PlainTextResponse, StreamingResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.config import Settings
from ambient_runner.server import request_parsing
from ambient_runner.server.app import add_ambient_endpoints, create_app
from ambient_runner.server.connection_limits import ConnectionLimits, LimitedHttpProtocol
from tests.faults.slow_clients import open_stalled_socket
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp
    from uvicorn.server import ServerState

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


def foreign_app() -> FastAPI:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    return app


def error_in(response: bytes) -> tuple[int, str, bool]:
    """Return status, code and whether the server says that it closes the connection."""
    head, _, body = response.partition(b"\r\n\r\n")
    closes = b"connection: close" in head.lower()
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"], closes


def test_m10_the_limits_are_those_of_the_documentation() -> None:
    limits = LimitedHttpProtocol.limits
    assert (limits.header_bytes, limits.first_byte_timeout, limits.headers_timeout, limits.unread_body_timeout) == (
        65536,
        10,
        10,
        30,
    )
    assert request_parsing.BODY_TIMEOUT == 30


async def test_m10_a_connection_that_sends_nothing_is_closed() -> None:
    async with served(our_app()) as server, server.connect() as client:
        assert await client.read_to_end() == b""


@pytest.mark.parametrize(
    "start", [b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\n" + HOST + b"X-Half: ", b"\r\n"]
)
async def test_m10_half_a_request_is_refused_after_its_time(start: bytes) -> None:
    async with served(our_app()) as server, server.connect() as client:
        await client.send(start)
        assert error_in(await client.read_to_end()) == (408, "request_timeout", True)


async def test_m10_headers_that_come_byte_by_byte_have_the_same_time() -> None:
    async def dribble(client: Connection) -> None:
        while True:
            await client.send(b"x")
            await asyncio.sleep(0.01)  # The pace of the client, not a wait.

    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
        task = asyncio.create_task(dribble(client))
        assert error_in(await client.read_to_end()) == (408, "request_timeout", True)
        task.cancel()


LARGE_REQUESTS = {
    "one header": b"GET /health HTTP/1.1\r\n" + HOST + b"X-Large: " + b"x" * 70_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: y\r\n" % at for at in range(9_000)) + b"\r\n",
    "the path": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a header that never ends": b"GET /health HTTP/1.1\r\nX-Large: " + b"x" * 1_000_000,
    "a body follows": b"POST / HTTP/1.1\r\nX-Large: " + b"x" * 70_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", LARGE_REQUESTS)
async def test_m10_headers_over_64_kib_are_refused(name: str) -> None:
    """150 MB were taken before any check."""
    async with served(our_app()) as server, server.connect() as client:
        await client.send(LARGE_REQUESTS[name])
        assert error_in(await client.read_to_end()) == (431, "headers_too_large", True)


async def test_m10_headers_below_the_limit_are_accepted() -> None:
    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET /health HTTP/1.1\r\n" + HOST + b"X-Large: " + b"x" * 60_000 + b"\r\n\r\n")
        assert await client.read_response() == (200, b'{"status":"healthy"}')


async def test_m10_trailers_are_headers() -> None:
    """They come after the body, and were kept as headers are."""
    start = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    async with served(our_app()) as server, server.connect() as client:
        await client.send(start + b"".join(b"X-%d: %b\r\n" % (at, b"y" * 1_000) for at in range(1_000)))
        assert b" 200 " not in await client.read_to_end()


HALF_BODY = b"POST / HTTP/1.1\r\n" + HOST + b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"messages"'


@pytest.mark.parametrize("protocol", [QuickLimits, HttpToolsProtocol])
async def test_m10_half_a_body_is_refused_also_in_another_app(
    protocol: type[HttpToolsProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_parsing, "BODY_TIMEOUT", 0.2)
    app = our_app() if protocol is QuickLimits else foreign_app()
    async with served(app, protocol) as server, server.connect() as client:
        await client.send(HALF_BODY)
        assert error_in(await client.read_to_end()) == (408, "request_timeout", True)


async def test_m10_a_body_that_nobody_reads_does_not_keep_the_connection() -> None:
    """uvicorn answers, waits for the rest of the body, and never ends that while a byte comes now and then."""

    async def dribble(client: Connection) -> None:
        while True:
            await client.send(b"x")
            await asyncio.sleep(0.01)  # The pace of the client, not a wait.

    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET /health HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n")
        assert (await client.read_response())[0] == 200
        task = asyncio.create_task(dribble(client))
        assert await client.read_to_end() == b""
        task.cancel()


async def test_m10_a_stream_is_not_cut_by_any_of_these_times() -> None:
    may_end = asyncio.Event()

    async def stream() -> AsyncGenerator[bytes]:
        yield b"first"
        await may_end.wait()
        yield b"last"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await StreamingResponse(stream())(scope, receive, send)

    async with served(app) as server, server.connect() as client:
        # Old clients send a line break after a body.
        await client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}\r\n")
        assert b"first" in await client.reader.readuntil(b"first")
        await client.send(b"\r\n")
        await server.wait_for_all_timers()
        may_end.set()
        assert b"last" in await client.read_to_end()


async def test_m10_an_idle_connection_keeps_the_time_of_keep_alive() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await PlainTextResponse("well")(scope, receive, send)

    async with served(app) as server, server.connect() as client:
        for body in (b"", b"{}"):
            await client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            assert await client.read_response() == (200, b"well")
            await server.wait_for_all_timers()
        await client.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert await client.read_response() == (200, b"well")


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
@pytest.mark.parametrize("size", [40_000, 4_000_000])
async def test_f11_a_response_of_any_size_that_nobody_reads_is_cut(size: int, headers: dict[str, str]) -> None:
    """uvicorn closes a connection only when the client has read what was sent, also one whose response is complete."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await PlainTextResponse("x" * size)(scope, receive, send)

    async with served(app, keep_alive=1, send_buffer=4096) as server:
        with open_stalled_socket(server.url, "/", headers) as client:
            assert len(await asyncio.to_thread(client.recv, 1)) == 1
            await server.wait_until_closed()
            assert len(await asyncio.to_thread(read_rest, client)) < size


async def test_f11_requests_without_end_whose_responses_nobody_reads_are_cut() -> None:
    async with served(our_app(), send_buffer=4096) as server:
        with open_stalled_socket(server.url, "/health") as client:
            assert len(await asyncio.to_thread(client.recv, 1)) == 1
            await asyncio.to_thread(client.sendall, (b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n") * 1_000)
            await server.wait_until_closed()


def read_rest(client: socket.socket) -> bytes:
    data = b""
    try:
        while part := client.recv(1 << 16):
            data += part
    except ConnectionError:
        pass
    return data
