"""Requests that are sent twice: the same key and body are one run, in any process, and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, new_id, run_input, split_runs
from tests.machine_speed import unless_hung

from .clients import Client
from .comparison import compare
from .harness import check_usable, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.sse import Event, Frame


async def post(url: str, body: Event, key: str) -> tuple[int, list[Frame]]:
    async with open_stream(f"{url}/", "POST", body=body, headers={"Idempotency-Key": key}) as stream:
        return stream.status, await stream.rest() if stream.status == 200 else []


async def test_f19_a_request_repeated_after_a_restart_is_the_same_run(tmp_path: Path) -> None:
    """After a stop and after a kill -9: the same key and body replay the run, another body is refused."""
    store, thread, key = tmp_path / "ambient.db", new_id("thread"), new_id("key")
    body = run_input(thread, "count 50")
    other = {**body, "messages": [{"id": "other", "role": "user", "content": "count 3"}]}
    with unless_hung():
        with await start_server(store) as server:
            status, first = await post(server.url, body, key)
        server = await start_server(store)
        again = await post(server.url, body, key)
        await anyio.to_thread.run_sync(server.kill)
        with await start_server(store) as server:
            once_more = await post(server.url, body, key)
            refused, _ = await post(server.url, other, key)
            stored = await history(server.url, thread)
    assert (status, refused) == (200, 409)
    assert [again, once_more] == [(200, first)] * 2
    assert first == stored
    assert len(split_runs(events_of(stored))) == 1


async def test_f19_a_request_repeated_after_its_server_was_killed_in_the_middle_is_the_same_run(tmp_path: Path) -> None:
    """The client saw a part of the run; its retry, at another server, gets the same events and the end, not a second run."""
    store, thread, key = tmp_path / "ambient.db", new_id("thread"), new_id("key")
    body = run_input(thread, "count 100000 every 5ms")
    with unless_hung():
        owner = await start_server(store)
        client = Client(thread, [owner.url])
        with await start_server(store) as other:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.post(body, headers={"Idempotency-Key": key}))
                await client.has_received(20)
                owner.process.kill()
            await anyio.to_thread.run_sync(owner.wait)
            statuses = [await post(other.url, body, key) for _ in range(3)]
            stored = await history(other.url, thread)
            await check_usable(other.url, thread)
    (events,) = split_runs(events_of(stored))
    assert ending(events) == "run_abandoned"
    assert [(status, bool(compare(frames, stored))) for status, frames in statuses] == [(200, False)] * 3
    assert stored[: len(client.frames)] == client.frames
