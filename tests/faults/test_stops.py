"""Stops at every moment: before the start, twice, after the end, from another process, while the owner is dead."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from tests.e2e.server import LEASE
from tests.e2e.talk import ending, events_of, history, new_id, run_input, split_runs
from tests.machine_speed import promised_within, unless_hung

from .clients import Client
from .harness import check_clients, check_thread, check_usable, pause_outside_commit, start_server, stop_run

if TYPE_CHECKING:
    from pathlib import Path

    from .harness import Pair


async def test_f21_a_stop_before_the_start_is_refused_and_does_not_stop_the_run_that_follows(pair: Pair) -> None:
    thread = new_id("thread")
    with unless_hung():
        assert (await stop_run(pair[0].url, thread)).status == 404
        await check_usable(pair[0].url, thread)
        assert [(await stop_run(server.url, thread)).status for server in pair] == [409, 409]
        await check_usable(pair[1].url, thread)
        assert len(split_runs(events_of(await history(pair[0].url, thread)))) == 2


async def test_f21_stops_at_the_same_moment_everywhere_end_the_run_once(pair: Pair) -> None:
    """Ten stops at two servers, while the run counts: at least one succeeds, none fails otherwise, one terminal event."""
    thread, answers = new_id("thread"), Counter[int]()
    clients = [Client(thread, [server.url]) for server in pair]

    async def stop_too(url: str) -> None:
        answers[(await stop_run(url, thread)).status] += 1

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clients[0].post, run_input(thread, "count 100000 every 2ms"))
            await clients[0].has_received(10)
            tasks.start_soon(clients[1].follow)
            for number in range(10):
                tasks.start_soon(stop_too, pair[number % 2].url)
        (events,) = await check_thread(pair[1].url, thread, clients)
    assert ending(events) == "cancelled"
    assert answers[200] >= 1
    assert set(answers) <= {200, 409}


async def test_f21_a_stop_of_a_hanging_run_from_another_process_ends_it(pair: Pair) -> None:
    thread = new_id("thread")
    client = Client(thread, [pair[0].url])
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, run_input(thread, "hang"))
            await client.has_received(3)
            assert (await stop_run(pair[1].url, thread)).status == 200
        stored = await history(pair[1].url, thread)
        check_clients([client], stored)
        assert (await stop_run(pair[0].url, thread)).status == 409
        await check_usable(pair[0].url, thread)
    (events,) = split_runs(events_of(stored))
    assert ending(events) == "cancelled"


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_f21_a_stop_while_the_owner_is_dead_or_paused_ends_the_run_once(
    pair: Pair, pair_store: Path, fault: signal.Signals
) -> None:
    """The stop comes after the owner died or froze. The run ends within two leases, whoever ends it, and once."""
    thread, other = new_id("thread"), pair[0]
    with unless_hung():
        owner = await start_server(pair_store)
        try:
            poster, reader = Client(thread, [owner.url]), Client(thread, [other.url])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poster.post, run_input(thread, "hang"))
                await poster.has_received(3)
                tasks.start_soon(reader.follow)
                await reader.has_received(3)
                if fault == signal.SIGSTOP:
                    await pause_outside_commit(owner, pair_store)
                else:
                    owner.signal(fault)
                with promised_within(2 * LEASE + 2):
                    assert (await stop_run(other.url, thread)).status in {200, 409}
                    stored = await history(other.url, thread)
                if fault == signal.SIGSTOP:
                    owner.signal(signal.SIGCONT)
            check_clients([reader], stored)
            await check_usable(other.url, thread)
            (events, _) = split_runs(events_of(await history(other.url, thread)))
        finally:
            await anyio.to_thread.run_sync(owner.kill)
    assert ending(events) in {"cancelled", "run_abandoned"}
    assert poster.frames == stored[: len(poster.frames)]
