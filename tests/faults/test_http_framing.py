"""Requests whose framing is unusual and valid, or says something else than their headers: what the app gets of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.faults.quick_server import HOST, our_app, served

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
async def test_m15_trailers_are_no_headers(parts: tuple[bytes, ...]) -> None:
    """Those in the packet of the head were headers for `authorize=` too, as RFC 9110 6.5.1 forbids."""
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        for part in parts:
            await client.send(part)
        assert await client.read_response() == (200, b"{}")
    assert app.requests == [({"host": "127.0.0.1", "transfer-encoding": "chunked"}, b"{}")]


async def test_m15_headers_after_trailers_are_those_of_the_next_request() -> None:
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        await client.send(CHUNKED + TRAILERS + b"GET / HTTP/1.1\r\n" + HOST + b"X-User: ann\r\n\r\n")
        for _ in range(2):
            assert await client.read_response() == (200, b"{}")
    assert [headers.get("x-user") for headers, _ in app.requests] == [None, "ann"]


BODY = b'{"a": 1}'
OFFERING = (
    b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
OFFERING_CHUNKED = (
    b"POST / HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\n%b\r\n5\r\n%b\r\n0\r\nX-User: admin\r\n\r\n" % (BODY[:3], BODY[3:])
)


@pytest.mark.parametrize("request_bytes", [OFFERING, OFFERING_CHUNKED], ids=["length", "chunked"])
async def test_m15_the_body_after_an_offer_to_upgrade_is_read_wherever_packets_begin(request_bytes: bytes) -> None:
    """The offer was found only within one packet: a cut in the word `Upgrade` lost the body."""
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        start = request_bytes.index(b"\r\nUpgrade")
        for cut in range(start, start + len(b"\r\nUpgrade: h2c\r\n")):
            await client.send(request_bytes[:cut])
            await asyncio.sleep(0)  # The server reads what was sent.
            await client.send(request_bytes[cut:])
            assert await client.read_response() == (200, b"{}")
        for at in range(len(request_bytes)):
            await client.send(request_bytes[at : at + 1])
            await asyncio.sleep(0)
        assert await client.read_response() == (200, b"{}")
    assert {body for _, body in app.requests} == {BODY}
    assert not any("x-user" in headers for headers, _ in app.requests)


async def test_m15_pipelined_requests_may_each_offer_to_upgrade() -> None:
    """Only the first head of a packet was looked at."""
    app = RecordingApp()
    plain = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    async with served(app) as server, server.connect() as client:
        await client.send(plain + OFFERING + OFFERING_CHUNKED + OFFERING + plain)
        for _ in range(5):
            assert await client.read_response() == (200, b"{}")
    assert [body for _, body in app.requests] == [b"", BODY, BODY, BODY, b""]


@pytest.mark.parametrize("cut", [60, len(OFFERING)])
async def test_m15_a_connection_that_ends_with_the_request_may_offer_to_upgrade(cut: int) -> None:
    app = RecordingApp()
    closing = OFFERING.replace(b"Connection: ", b"Connection: close, ")
    async with served(app) as server, server.connect() as client:
        await client.send(closing[:cut])
        await asyncio.sleep(0)
        await client.send(closing[cut:])
        assert await client.read_response() == (200, b"{}")
    assert [body for _, body in app.requests] == [BODY]


async def test_m15_an_offer_to_upgrade_does_not_change_the_other_headers() -> None:
    app = RecordingApp()
    async with served(app) as server, server.connect() as client:
        await client.send(OFFERING)
        assert await client.read_response() == (200, b"{}")
    assert app.requests == [
        (
            {
                "host": "127.0.0.1",
                "connection": "Upgrade, HTTP2-Settings",
                "http2-settings": "AAMAAABk",
                "content-length": str(len(BODY)),
            },
            BODY,
        )
    ]


async def test_m15_a_body_is_not_searched_for_an_offer_to_upgrade() -> None:
    """The text was changed in a body behind empty lines, which may come before a request."""
    app = RecordingApp()
    body = b"\r\nUpgrade: h2c\r\n\r\n"
    async with served(app) as server, server.connect() as client:
        await client.send(b"\r\n\r\nPOST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert await client.read_response() == (200, b"{}")
    assert [received for _, received in app.requests] == [body]


@pytest.mark.parametrize("target", ["http://evil.example/thread/list", "http://127.0.0.1@evil.example/thread/list"])
async def test_m15_the_host_of_an_absolute_target_counts(target: str) -> None:
    """RFC 9112, 3.2.2: the `Host` header is ignored then. The host check read the header only."""
    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET %b HTTP/1.1\r\n" % target.encode() + HOST + b"\r\n")
        assert (await client.read_response())[0] == 403


async def test_m15_an_absolute_target_for_this_machine_is_served() -> None:
    async with served(our_app()) as server, server.connect() as client:
        await client.send(b"GET http://127.0.0.1:8000/thread/list HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await client.read_response())[0] == 200


JSON = b"Content-Type: application/json\r\n"
MALFORMED_REQUESTS = {
    "no HTTP": b"hello\r\n\r\n",
    "HTTPS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "a length that is no number": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: ten\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk without a size": b"POST / HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED_REQUESTS)
async def test_m15_a_request_that_is_no_http_gets_an_error_as_all_others(name: str) -> None:
    """It got a line of plain text that did not say what to do."""
    async with served(our_app()) as server, server.connect() as client:
        await client.send(MALFORMED_REQUESTS[name])
        answer = await client.read_to_end()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "malformed_request"
