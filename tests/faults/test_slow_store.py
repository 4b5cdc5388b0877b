"""A store that is slow or fails for a moment: agents wait, nothing is delivered that is not stored, and memory does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import psutil
import pytest

from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, history, new_id, numbers, run_input, text_of
from tests.machine_speed import unless_hung

from .clients import Client
from .harness import Harness, check_clients, check_usable, start_server
from .syscalls import injected, needs_strace

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SYNCS = "fsync,fdatasync"


@needs_strace
async def test_f08_a_slow_disk_makes_the_agent_wait_and_memory_does_not_grow(tmp_path: Path, long: bool) -> None:
    """Every sync takes 50 ms. An agent as fast as it can be is slowed down by the bound of what waits to be written."""
    count = 400_000 if long else 30_000
    with unless_hung(), await start_server(tmp_path / "ambient.db") as server:
        process, thread = psutil.Process(server.pid), new_id("thread")
        await Harness(urls=[server.url], command="count 2000", joined=1, count=1).run(anyio.lowlevel.checkpoint)
        before = process.memory_info().rss
        clients, highest = [Client(thread, [server.url]) for _ in range(3)], 0
        with injected(server.pid, f"{SYNCS}:delay_enter=50000"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(clients[0].post, run_input(thread, f"count {count}"))
                await clients[0].has_received(1)
                for client in clients[1:]:
                    tasks.start_soon(client.follow)
                while not all(client.ended_runs for client in clients):
                    highest = max(highest, process.memory_info().rss)
                    await anyio.sleep(0.05)
        stored = await history(server.url, thread)
        check_clients(clients, stored)
        assert text_of(frame.event for frame in stored) == numbers(count)
    print(f"RSS grew by {(highest - before) / MIB:.1f} MiB over {count} events on a slow disk")
    assert highest - before < 60 * MIB


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
async def test_f08_a_disk_that_fails_for_a_moment_delivers_nothing_that_is_not_stored(
    tmp_path: Path, error: str
) -> None:
    """Writes fail while clients read: the run survives it or ends with an error, and every client has what the ledger has."""
    with unless_hung(), await start_server(tmp_path / "ambient.db") as server:

        async def fail_writes() -> None:
            with injected(server.pid, f"pwrite64,fdatasync:error={error}"):
                await anyio.sleep(0.5)

        harness = Harness(urls=[server.url], command="count 400 every 5ms")
        events = await harness.run(fail_writes)
        assert ending(events) in {"success", "run_abandoned", "store_unavailable"}


@needs_strace
async def test_f08_many_readers_of_a_slow_store_are_all_answered(tmp_path: Path) -> None:
    """More clients than pooled connections read old threads while every read of the file is slow."""
    with unless_hung(), await start_server(tmp_path / "ambient.db") as server:
        threads = [new_id("thread") for _ in range(10)]
        for thread in threads:
            await Client(thread, [server.url]).post(run_input(thread, "count 500"))
        answered: list[int] = []

        async def read(thread: str) -> None:
            async with open_stream(f"{server.url}/threads/{thread}/events?until=idle") as stream:
                answered.append(len([frame for frame in await stream.rest() if frame.id]))

        with injected(server.pid, "pread64:delay_enter=2000"):
            async with anyio.create_task_group() as tasks:
                for number in range(60):
                    tasks.start_soon(read, threads[number % len(threads)])
        expected = len([frame for frame in await history(server.url, threads[0]) if frame.id])
        assert answered == [expected] * 60
        await check_usable(server.url, threads[0])
