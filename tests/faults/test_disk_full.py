"""A disk that is full, and has space again: nothing is torn, the run ends once, and the thread is usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from tests.e2e.talk import ending, new_id, run_input
from tests.machine_speed import unless_hung

from .clients import Client
from .harness import check_thread, start_server
from .small_disk import fill_disk, mounted_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 16 << 20
"""Bytes of the small disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", SIZE) as directory:
        yield directory


async def test_f14_a_full_disk_ends_no_run_twice_and_delivers_nothing_that_is_not_stored(
    small_disk: Path, tmp_path: Path
) -> None:
    """The disk fills up in the middle of runs and has space again: one terminal event each, no torn entry, threads usable."""
    with unless_hung(), await start_server(small_disk / "ambient.db") as server:
        clients = [Client(new_id("thread"), [server.url]) for _ in range(4)]
        readers = [Client(client.thread, [server.url]) for client in clients]

        async def post_and_follow(client: Client) -> None:
            await client.post(run_input(client.thread, "count 2000 every 1ms"))
            await client.follow()

        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(post_and_follow, client)
                await client.has_received(1)
            for reader in readers:
                tasks.start_soon(reader.follow)
                await reader.has_received(20)
            ballast = fill_disk(small_disk)
            while "full" not in server.output and not clients[0].ended_runs:
                await anyio.sleep(0.02)
            assert not any(client.ended_runs for client in clients), "a run ended although nothing could be stored"
            ballast.unlink()
        for client, reader in zip(clients, readers, strict=True):
            (events,) = await check_thread(server.url, client.thread, [client, reader])
            assert ending(events) in {"success", "run_abandoned", "store_unavailable"}
