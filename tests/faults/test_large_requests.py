"""Requests that are far too large: refused early, with flat memory, while a run beside them goes on."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest

from tests.e2e.sse import Stream, connect, request_head
from tests.e2e.talk import events_of, new_id, numbers, one_run, run, run_input, text_of
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.server import Child

MIB = 1 << 20
SIZE = 300 * MIB
JSON = {"Content-Type": "application/json"}


def chunked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def huge_body() -> Iterator[bytes]:
    for _ in range(SIZE // MIB):
        yield b" " * MIB


def million_messages() -> Iterator[bytes]:
    yield b'{"threadId": "t", "runId": "r", "messages": ['
    for _ in range(100):
        yield b'{"id": "m", "role": "user", "content": "hello"},' * 10_000
    yield b'{"id": "last", "role": "user", "content": "hello"}]}'


def gzip_bomb() -> Iterator[bytes]:
    yield gzip.compress(b" " * (100 * MIB))


REQUESTS = {
    "300 MB, declared": ({"Content-Length": str(SIZE)}, huge_body, {413}),
    "300 MB in chunks": ({"Transfer-Encoding": "chunked"}, lambda: chunked(huge_body()), {413}),
    "a million messages in chunks": ({"Transfer-Encoding": "chunked"}, lambda: chunked(million_messages()), {413, 422}),
    "a gzip bomb in chunks": (
        {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"},
        lambda: chunked(gzip_bomb()),
        {400, 413, 415},
    ),
}


async def send(server: Child, headers: dict[str, str], body: Iterator[bytes]) -> tuple[int, str, int]:
    """Send a request until the server answers. Return its status, its code and how many bytes were sent."""
    sent = 0
    async with connect(server.url) as (reader, writer):
        stream = Stream(reader, writer)
        writer.write(request_head("POST", "/", {"Host": f"127.0.0.1:{server.port}", **JSON, **headers}))
        answered = asyncio.ensure_future(stream.read_head())
        try:
            for piece in body:
                if answered.done():
                    break
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        await answered
        return stream.status, json.loads(await stream.body())["error"]["code"], sent


@pytest.mark.parametrize("name", REQUESTS)
async def test_f23_a_request_that_is_far_too_large_is_refused_early(server: Child, name: str) -> None:
    """The answer comes long before its end, memory stays flat, and a run beside it is complete."""
    headers, body, expected = REQUESTS[name]
    process, texts, highest = psutil.Process(server.pid), list[str](), 0
    is_over = anyio.Event()

    async def count() -> None:
        frames = await run(server.url, run_input(new_id("thread"), "count 200 every 2ms"))
        texts.append(text_of(one_run(events_of(frames))))

    async def watch_memory() -> None:
        nonlocal highest
        while not is_over.is_set():
            highest = max(highest, process.memory_info().rss)
            with anyio.move_on_after(0.01):
                await is_over.wait()

    with unless_hung():
        await count()
        before = process.memory_info().rss
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_memory)
            async with anyio.create_task_group() as runs:
                runs.start_soon(count)
                status, code, sent = await send(server, headers, body())
            is_over.set()
    assert (status in expected, code != "internal_error") == (True, True), (status, code)
    assert sent < SIZE / 4
    assert highest - before < 100 * MIB
    assert texts == [numbers(200)] * 2
