"""Requests whose framing is unusual and valid, or says something else than their headers: what the app gets of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.faults.quick_server import HOST, served

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class RecordingApp:
    """Records the headers and the body of every request."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope, receive)
            body = await request.body()
            self.requests.append((dict(request.headers), body))
            await JSONResponse({})(scope, receive, send)


CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
TRAILERS = b"X-User: admin\r\nHost: evil.example\r\nExpect: 100-continue\r\n\r\n"


@pytest.mark.parametrize("parts", [(CHUNKED + TRAILERS,), (CHUNKED, TRAILERS)], ids=["at once", "later"])
async def test_trailers_are_no_headers(parts: tuple[bytes, ...]) -> None:
    """Those in the packet of the head were headers for `authorize=` too, as RFC 9110 6.5.1 forbids."""
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        for part in parts:
            await client.send(part)
        assert await client.read_response() == (200, b"{}")
    assert app.requests == [({"host": "127.0.0.1", "transfer-encoding": "chunked"}, b"{}")]


async def test_headers_after_trailers_are_those_of_the_next_request() -> None:
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        await client.send(CHUNKED + TRAILERS + b"GET / HTTP/1.1\r\n" + HOST + b"X-User: ann\r\n\r\n")
        for _ in range(2):
            assert await client.read_response() == (200, b"{}")
    assert [headers.get("x-user") for headers, _ in app.requests] == [None, "ann"]
