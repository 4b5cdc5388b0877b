"""Many streams at once: idle ones cost little, all that are cut come back exact, and a server without file descriptors recovers."""

from __future__ import annotations

import resource
import time
from contextlib import AsyncExitStack
from statistics import quantiles
from typing import TYPE_CHECKING

import anyio
import psutil

from tests.e2e.sse import open_stream
from tests.e2e.talk import events_of, history, new_id, numbers, one_run, run, run_input, text_of
from tests.machine_speed import scaled, unless_hung

from .clients import CUT
from .comparison import compare
from .harness import check_usable, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.server import Child
    from tests.e2e.sse import Frame

KIB = 1 << 10
RESERVED = 64
"""File descriptors that this process needs for itself."""


def most_connections(wanted: int) -> int:
    """Return how many connections this process and a server can hold, at most those wanted."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(wanted, soft - RESERVED)


async def test_f12_idle_streams_cost_little_and_active_ones_beside_them_are_complete(
    tmp_path: Path, long: bool
) -> None:
    """Short: 500 idle streams beside 10 active runs; long: 10,000 beside 100. At most 100 KiB each, pings included."""
    idle, active = most_connections(10_000 if long else 500), 100 if long else 10
    texts: list[str] = []
    env = {"AMBIENT_HEARTBEAT": "15" if long else "0.5"}  # the default; with 10,000 streams it is pings enough

    async def count(server: Child) -> None:
        frames = await run(server.url, run_input(new_id("thread"), "count 200 every 5ms"))
        texts.append(text_of(one_run(events_of(frames))))

    with unless_hung():
        async with AsyncExitStack() as streams:
            server = streams.enter_context(await start_server(tmp_path / "ambient.db", env=env))
            thread, process = new_id("thread"), psutil.Process(server.pid)
            frames = await run(server.url, run_input(thread, "hello"))
            before = process.memory_info().rss
            for _ in range(idle):
                url = f"{server.url}/threads/{thread}/events?after={frames[-1].id}"
                await streams.enter_async_context(open_stream(url))
            grown = process.memory_info().rss - before
            async with anyio.create_task_group() as tasks:
                for _ in range(active):
                    tasks.start_soon(count, server)
    print(f"{idle} idle streams: {grown / idle / KIB:.1f} KiB each")
    assert grown / idle < 100 * KIB
    assert texts == [numbers(200)] * active


async def test_f13_a_reconnect_storm_is_answered_exactly(server: Child, long: bool) -> None:
    """All clients are cut at once in the middle of finished threads and resume at once; none is wrong, none waits long.

    Short: 200 clients of 10 threads; long: 1,000 clients of 50 threads.
    """
    readers, count = most_connections(1_000 if long else 200), 50 if long else 10
    logs: dict[str, list[Frame]] = {}
    wrong, took = list[object](), list[float]()

    async def resume(url: str, thread: str, cut: int) -> None:
        began = time.monotonic()
        rest = await history(url, thread, after=logs[thread][cut].id)
        took.append(time.monotonic() - began)
        if found := compare(rest, logs[thread], after=logs[thread][cut].id):
            wrong.append(found)

    with unless_hung():
        for _ in range(count):
            thread = new_id("thread")
            logs[thread] = await run(server.url, run_input(thread, "count 300"))
        async with anyio.create_task_group() as tasks:
            for number in range(readers):
                tasks.start_soon(resume, server.url, list(logs)[number % count], 3 + number % 290)
        await check_usable(server.url, next(iter(logs)))
    p50, p99 = (quantiles(took, n=100)[at] for at in (49, 98))
    print(f"{readers} clients resumed at once: p50 {p50:.2f} s, p99 {p99:.2f} s")
    assert (len(took), wrong) == (readers, [])
    assert p99 < scaled(readers / 20)


async def test_f12_a_server_without_file_descriptors_recovers(tmp_path: Path) -> None:
    """More connections than it may open: what is refused is refused, runs go on, and later clients are served."""
    thread, frames = new_id("thread"), list["Frame"]()
    with unless_hung(), await start_server(tmp_path / "ambient.db") as server:
        started = anyio.Event()

        async def count() -> None:
            async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 200 every 10ms")) as stream:
                frames.extend(await stream.read(10))
                started.set()
                frames.extend(await stream.rest())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await started.wait()
            used = psutil.Process(server.pid).num_fds()
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 10, used + 10))
            refused = await hold_connections(server.url, thread, 40)
        stored = await history(server.url, thread)
        await check_usable(server.url, thread)
    assert refused > 0, "the limit was not reached"
    assert not compare(frames, stored)
    assert text_of(one_run(events_of(frames))) == numbers(200)


async def hold_connections(url: str, thread: str, count: int) -> int:
    """Open so many streams at once and hold them for a second. Return how many were not answered meanwhile."""
    answered = 0

    async def hold() -> None:
        nonlocal answered
        try:
            async with open_stream(f"{url}/threads/{thread}/events"):
                answered += 1
                await anyio.sleep_forever()
        except CUT:
            pass

    with anyio.move_on_after(1.0):
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(hold)
    return count - answered
