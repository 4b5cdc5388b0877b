"""F11: clients that read nothing of a response are disconnected by the HTTP protocol of `ambient serve`, whatever the app is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import PlainTextResponse

from tests.faults.quick_server import HOST, our_app, served
from tests.faults.slow_clients import open_stalled_socket

if TYPE_CHECKING:
    import socket


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
@pytest.mark.parametrize("size", [40_000, 4_000_000])
async def test_f11_m5_a_response_of_any_size_that_nobody_reads_is_cut(size: int, headers: dict[str, str]) -> None:
    """uvicorn closes a connection only when the client has read what was sent, also one whose response is complete."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await PlainTextResponse("x" * size)(scope, receive, send)

    async with served(app, keep_alive=1, send_buffer=4096) as server:
        with open_stalled_socket(server.url, "/", headers) as client:
            assert len(await asyncio.to_thread(client.recv, 1)) == 1
            await server.wait_until_closed()
            assert len(await asyncio.to_thread(read_rest, client)) < size


async def test_f11_m5_requests_without_end_whose_responses_nobody_reads_are_cut() -> None:
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
