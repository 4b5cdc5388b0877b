"""Streams leave nothing to the garbage collector: tried through the HTTP protocol of `ambient serve`."""

from __future__ import annotations

import gc
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.server.direct_send import expose_server_send
from tests.faults.quick_server import HOST, Connection, Served, our_app, served
from tests.garbage import find_garbage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    RequestStream = Callable[[Connection, str], Awaitable[None]]

REQUESTS = 5
ATTEMPTS = 3


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As `ambient serve`: the transports of asyncio's own loop refer to themselves."""
    return "asyncio", {"use_uvloop": True}


def post(thread: str, text: str, *, path: bytes = b"/", on_busy: bytes = b"reject") -> bytes:
    message = {"id": f"m-{thread}", "role": "user", "content": text}
    run_input: dict[str, Any] = {
        "threadId": thread,
        "runId": "r",
        "messages": [message],
        "state": {},
        "tools": [],
        "context": [],
    }
    body = json.dumps({**run_input, "forwardedProps": {}}).encode()
    headers = (
        HOST,
        b"Content-Type: application/json\r\n",
        b"X-Ambient-On-Busy: %b\r\n" % on_busy,
        b"Connection: close\r\n",
    )
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path, b"".join(headers), len(body), body)


def follow(thread: str, query: str = "") -> bytes:
    return b"GET /threads/%b/events%b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (thread.encode(), query.encode(), HOST)


async def post_to_the_end(client: Connection, thread: str) -> None:
    await client.send(post(thread, "count 40 every 1ms"))
    assert b"RUN_FINISHED" in await client.read_to_end()


async def post_as_copilotkit(client: Connection, thread: str) -> None:
    await client.send(post(thread, "weather Lisbon", path=b"/copilotkit/agent/demo/run"))
    assert b"RUN_FINISHED" in await client.read_to_end()


async def post_to_the_queue(client: Connection, thread: str) -> None:
    await client.send(post(thread, "weather Lisbon", on_busy=b"queue"))
    assert b"RUN_FINISHED" in await client.read_to_end()


async def leave_a_post(client: Connection, thread: str) -> None:
    await client.send(post(thread, "count 40 every 5ms"))
    await client.reader.readuntil(b"TEXT_MESSAGE_CONTENT")


async def follow_until_idle(client: Connection, thread: str) -> None:
    await client.send(follow("kept", "?until=idle"))
    assert b"RUN_FINISHED" in await client.read_to_end()


async def follow_and_leave(client: Connection, thread: str) -> None:
    await client.send(follow("kept"))
    await client.reader.readuntil(b"RUN_FINISHED")


async def connect_and_leave(client: Connection, thread: str) -> None:
    await client.send(follow("kept", "?from=snapshot"))
    await client.reader.readuntil(b"RUN_FINISHED")


@pytest.mark.parametrize(
    "request_stream",
    [
        post_to_the_end,
        post_as_copilotkit,
        post_to_the_queue,
        leave_a_post,
        follow_until_idle,
        follow_and_leave,
        connect_and_leave,
    ],
)
async def test_a_stream_leaves_no_objects_in_reference_cycles(
    request_stream: RequestStream,
) -> None:
    """Measured again if there is something: what an earlier test has left is there once, what a stream leaves every time."""
    found = Counter[str]()
    for _ in range(ATTEMPTS):
        found = await collect_after(request_stream)
        if not found:
            break
    assert found == Counter()


async def collect_after(request_stream: RequestStream) -> Counter[str]:
    """Return the types of the objects that several requests leave to the collector."""
    async with served(expose_server_send(our_app())) as server:
        await request_once(server, post_to_the_end, "kept")
        await request_once(server, request_stream, "first")  # What is cached then is no garbage.
        await server.wait_until_closed()
        gc.collect()
        gc.disable()
        try:
            for number in range(REQUESTS):
                await request_once(server, request_stream, f"t{number}")
            await server.wait_until_closed()
            return find_garbage()
        finally:
            gc.enable()


async def request_once(server: Served, request_stream: RequestStream, thread: str) -> None:
    async with server.connect() as client:
        await request_stream(client, thread)
