"""M10: connections that send nothing, half a request, or headers without end. They are closed, and streams are not."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse, StreamingResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.server import request_parsing
from ambient_runner.server.app import add_ambient_endpoints
from ambient_runner.server.connection_limits import LimitedHttpProtocol
from tests.faults.quick_server import HOST, SETTINGS, Connection, QuickLimits, our_app, served

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def foreign_app() -> FastAPI:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    return app


def error_in(response: bytes) -> tuple[int, str, bool]:
    """Return status, code and whether the server says that it closes the connection."""
    head, _, body = response.partition(b"\r\n\r\n")
    closes = b"connection: close" in head.lower()
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"], closes


async def send_slowly(client: Connection) -> None:
    """Send a byte now and then, without end."""
    while True:
        await client.send(b"x")
        await asyncio.sleep(0.01)  # The pace of the client, not a wait.


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
    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
        task = asyncio.create_task(send_slowly(client))
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


async def test_m10_trailers_count_toward_the_limit_of_headers() -> None:
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
    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET /health HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n")
        assert (await client.read_response())[0] == 200
        task = asyncio.create_task(send_slowly(client))
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
