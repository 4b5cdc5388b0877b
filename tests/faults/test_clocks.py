"""Clocks that are wrong or jump: leases use time that no one can set, and cursors stay in order."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import anyio
import pytest

from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .clients import Client
from .comparison import position_of
from .harness import AGENTS, check_thread, check_usable, start_server

HOUR = 3600
FAKETIME = next(
    (str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), ctypes.util.find_library("faketime")
)


async def test_f16_a_clock_that_jumps_in_the_middle_of_a_run_changes_nothing(tmp_path: Path) -> None:
    """The wall clock of the owner jumps back, forward and by a leap second; the other server does not take its run over."""
    store, agent = tmp_path / "ambient.db", f"clock={AGENTS}:clock"
    with unless_hung(), await start_server(store, agent) as owner, await start_server(store, agent) as other:
        for step in (-HOUR, 2 * HOUR, -1):
            thread = new_id("thread")
            clients = [Client(thread, [url]) for url in (owner.url, owner.url, other.url, other.url)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(clients[0].post, run_input(thread, f"count 200 {step}"))
                await clients[0].has_received(1)
                for client in clients[1:]:
                    tasks.start_soon(client.follow)
            (events,) = await check_thread(other.url, thread, clients)
            assert (ending(events), text_of(events)) == ("success", numbers(200))
            await check_usable(owner.url, thread)
            positions = [position_of(frame.id) for frame in await history(other.url, thread) if frame.id]
            assert positions == sorted(set(positions))


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed: no server with a clock of its own")
@pytest.mark.parametrize("offset", ["-1h", "+1h"])
async def test_f16_a_server_an_hour_off_neither_loses_nor_takes_a_lease(tmp_path: Path, offset: str) -> None:
    """Two servers on one file, one of them an hour off for as long as it lives."""
    store, thread = tmp_path / "ambient.db", new_id("thread")
    skewed = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    lease = {"AMBIENT_LEASE": "20"}  # Far below the offset, and more than a busy machine lets an owner wait.
    with unless_hung():
        with await start_server(store, env=skewed | lease) as a, await start_server(store, env=lease) as b:
            for owner, other in ((a, b), (b, a)):
                async with open_stream(f"{owner.url}/", "POST", body=run_input(thread, "count 100 every 10ms")) as run_:
                    begun = await run_.until("TEXT_MESSAGE_CONTENT")
                    async with open_stream(f"{other.url}/", "POST", body=run_input(thread, "hello")) as refused:
                        assert (refused.status, b"thread_busy" in await refused.body()) == (409, True)
                    (events,) = split_runs(events_of(begun + await run_.rest()))
                assert (ending(events), text_of(events)) == ("success", numbers(100))
                await check_usable(other.url, thread)
