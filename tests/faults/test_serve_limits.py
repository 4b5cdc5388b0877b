"""M10 for `ambient serve` as it is started: the limits of a connection are in place."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.e2e.talk import new_id
from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from tests.e2e.server import Child


def test_m10_ambient_serve_refuses_headers_without_end(server: Child) -> None:
    """It took 150 MB of them on one connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_SECONDS) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Large: " + b"x" * (256 << 10))
        status_line = client.makefile("rb").readline()
    assert status_line == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


@pytest.mark.parametrize("is_split", [False, True])
def test_m15_a_request_that_offers_http2_is_answered_as_http1(server: Child, is_split: bool) -> None:
    """Java's client and `curl --http2` offer it with every first request; the parser then read no body."""
    body = b'{"threadId": "%s", "messages": [{"role": "user", "content": "say hi"}]}' % new_id("thread").encode()
    head = (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_SECONDS) as client:
        for part in (head, body) if is_split else (head + body,):
            client.sendall(part)
        answer = client.makefile("rb")
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        assert any(b'"RUN_FINISHED"' in line for line in answer)
