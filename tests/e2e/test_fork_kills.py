"""kill -9 while threads are forked: of each fork there is nothing, or the whole copy with the new message."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from tests.machine_speed import promised_within, unless_hung

from .server import LEASE, Child, start
from .sse import Truncated, open_stream
from .talk import ending, events_of, history, run, run_input, split_runs

if TYPE_CHECKING:
    from pathlib import Path

FORKS = 12
KILLS = 6


class Fork:
    """A request for a fork whose run never ends by itself. `seen` are the types of the events that its client got."""

    def __init__(self, thread: str) -> None:
        self.body = run_input(thread, "hang")
        self.thread = thread
        self.seen: list[str] = []

    async def request(self, url: str, before: str, first_event: anyio.Semaphore) -> None:
        try:
            async with open_stream(f"{url}/?fork=source&before={before}", "POST", body=self.body) as stream:
                async for frame in stream:
                    self.seen.append(frame.event["type"])
                    if len(self.seen) == 1:
                        first_event.release()
        except (Truncated, EOFError, ConnectionError):
            pass


async def read(url: str, path: str) -> dict[str, Any] | None:
    async with open_stream(f"{url}{path}") as answer:
        body = await answer.body()
        return msgspec.json.decode(body) if answer.status == 200 else None


async def source_of(url: str) -> tuple[list[dict[str, Any]], Any]:
    found, state = await read(url, "/message_snapshot/source"), await read(url, "/state_snapshot/source")
    assert found is not None
    assert state is not None
    return found["messages"], state["snapshot"]


async def forked_and_killed(server: Child, round_: int, before: str, wanted: int) -> list[Fork]:
    """Fork many times at once, and kill the server when so many of the runs have begun."""
    forks = [Fork(f"fork-{round_}-{at}") for at in range(FORKS)]
    begun = anyio.Semaphore(0)
    async with anyio.create_task_group() as tasks:
        for fork in forks:
            tasks.start_soon(fork.request, server.url, before, begun)
        for _ in range(wanted):
            await begun.acquire()
        server.process.kill()
    await anyio.to_thread.run_sync(server.wait)
    return forks


async def is_whole(url: str, fork: Fork, copied: list[dict[str, Any]], state: Any) -> bool:
    """Return False if there is nothing of the fork. It must be the whole copy otherwise, and usable."""
    found = await read(url, f"/message_snapshot/{fork.thread}")
    if found is None:
        assert fork.seen == [], "a thread a client had seen is gone"
        return False
    expected = [*copied, *fork.body["messages"]]
    assert found["messages"][: len(expected)] == expected
    assert [message["role"] for message in found["messages"][len(expected) :]] in ([], ["assistant"])
    now = await read(url, f"/state_snapshot/{fork.thread}")
    assert now is not None
    assert now["snapshot"] == state
    with promised_within(2 * LEASE):
        [events] = split_runs(events_of(await history(url, fork.thread)))
    assert ending(events) == "run_abandoned"
    assert ending(events_of(await run(url, run_input(fork.thread, "say on")))) == "success"
    return True


async def test_a_kill_leaves_nothing_of_a_fork_or_all_of_it(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, store = random.Random(seed), tmp_path / "ambient.db"
    whole = 0
    with unless_hung():
        server = await anyio.to_thread.run_sync(start, store)
        try:
            for text in ("weather Lisbon", "state"):
                await run(server.url, run_input("source", text))
            copied, state = await source_of(server.url)
            last = run_input("source", "say last")
            await run(server.url, last)
            before = last["messages"][0]["id"]
            source = await source_of(server.url)
            for round_ in range(KILLS):
                forks = await forked_and_killed(server, round_, before, round_ and dice.randrange(1, FORKS))
                server = await anyio.to_thread.run_sync(start, store)
                for fork in forks:
                    whole += await is_whole(server.url, fork, copied, state)
                assert await source_of(server.url) == source
        finally:
            await anyio.to_thread.run_sync(server.stop)
    print(f"{KILLS} kills, {KILLS * FORKS} forks, {whole} of them whole, the others not there")
    assert state != {}
    assert 0 < whole < KILLS * FORKS
