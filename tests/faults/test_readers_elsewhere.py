"""M3: two processes on one SQLite file. A reader in any of them counts, and a run can be stopped from any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from tests.e2e.server import LEASE, start
from tests.e2e.sse import open_stream
from tests.e2e.talk import history, new_id, run_input
from tests.machine_speed import promised_within, unless_hung

from .harness import stop_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.server import Child

    from .harness import Pair

COUNTING = "count 100000 every 5ms"
RETRY_INTERVAL = 0.05


async def begin_and_leave(server: Child, thread: str) -> str:
    """Start a run and close its stream. Return the cursor to resume with."""
    async with open_stream(f"{server.url}/", "POST", body=run_input(thread, COUNTING)) as stream:
        await stream.read(10)
        return stream.last_id


async def status_of_post(server: Child, thread: str) -> int:
    """Post a newer message, which supersedes a run that nobody reads."""
    async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "say hello")) as stream:
        return stream.status


async def wait_until_accepted(server: Child, thread: str) -> None:
    while await status_of_post(server, thread) != 200:
        await anyio.sleep(RETRY_INTERVAL)


async def test_m3_a_run_that_is_read_at_another_process_is_not_superseded(pair: Pair) -> None:
    a, b = pair
    thread = new_id("thread")
    with unless_hung():
        cursor = await begin_and_leave(a, thread)
        headers = {"Last-Event-ID": cursor}
        async with open_stream(f"{b.url}/threads/{thread}/events", headers=headers) as resumed:
            # It may have been read for longer than a lease: a process that only reads renews what it has registered.
            with anyio.move_on_after(2 * LEASE):
                await resumed.until("RUN_FINISHED")
            assert await status_of_post(a, thread) == 409
            frames = await resumed.read(50)
            assert {frame.type for frame in frames} == {"TEXT_MESSAGE_CONTENT"}
        # Once that reader has left too, nobody reads the run.
        with promised_within(5):
            await wait_until_accepted(a, thread)
        await history(a.url, thread)  # Nothing runs afterwards.


async def test_m3_a_stop_without_a_thread_finds_the_run_of_another_process(pair: Pair) -> None:
    a, b = pair
    thread = new_id("thread")
    with unless_hung():
        assert (await stop_run(b.url)).status == 409
        async with open_stream(f"{a.url}/", "POST", body=run_input(thread, COUNTING)) as stream:
            await stream.read(5)
            answer = await stop_run(b.url)
            assert answer.status == 200
            (*_, last) = await stream.rest()
    assert answer.body["threadId"] == thread
    assert last.event["outcome"] == {"type": "cancelled"}


async def test_m3_the_readers_of_a_process_that_died_do_not_count(pair: Pair, pair_store: Path) -> None:
    a, _ = pair
    thread = new_id("thread")
    with unless_hung(), start(pair_store) as third:
        cursor = await begin_and_leave(a, thread)
        async with open_stream(f"{third.url}/threads/{thread}/events", headers={"Last-Event-ID": cursor}) as resumed:
            await resumed.read(20)
            assert await status_of_post(a, thread) == 409
            third.kill()
        with promised_within(4 * LEASE):
            await wait_until_accepted(a, thread)
