"""The two measurements on this server: `ambient serve demo` on a SQLite file, with clients over HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.e2e.server import LEASE, start
from tests.e2e.sse import open_stream
from tests.e2e.talk import TERMINALS, ending, events_of, history, new_id, run_input, split_runs
from tests.faults.clients import CUT
from tests.faults.comparison import compare

from .results import JoinResult, KillResult

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.sse import Frame

__all__ = ["NAME", "measure_joins", "measure_kill"]

NAME = "Ambient Runner"


@dataclass
class _Joins:
    """Moments of a run: an event for each number of the run at which a client joins."""

    moments: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])

    async def post(self, url: str, thread: str, events: int) -> None:
        body, count = run_input(thread, f"count {events} every 1ms"), 0
        async with open_stream(f"{url}/", "POST", body=body) as stream:
            async for _ in stream:
                count += 1
                if count in self.moments:
                    self.moments[count].set()

    async def join(self, url: str, thread: str, at: int, pace: float) -> list[Frame]:
        await self.moments[at].wait()
        received: list[Frame] = []
        async with open_stream(f"{url}/threads/{thread}/events") as stream:
            async for frame in stream:
                received.append(frame)
                await asyncio.sleep(pace)
                if frame.type in TERMINALS:
                    break
        return received


async def measure_joins(directory: Path, clients: int, events: int, pace: float) -> JoinResult:
    """Let clients join a run that counts, each at another event, and compare their lists with the log."""
    thread, joins = new_id("thread"), _Joins()
    joins.moments = {at: asyncio.Event() for at in random.Random(1).sample(range(2, events), clients)}
    with await asyncio.to_thread(start, directory / "ambient.db") as server:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(joins.post(server.url, thread, events))
            readers = [tasks.create_task(joins.join(server.url, thread, at, pace)) for at in joins.moments]
        log = await history(server.url, thread)
    found = [compare(reader.result(), log) for reader in readers]
    return JoinResult(
        server=NAME,
        pace=pace,
        clients=clients,
        clients_with_loss=sum(bool(differences.lost) for differences in found),
        lost=sum(len(differences.lost) for differences in found),
        most=max(len(differences.lost) for differences in found),
        twice=sum(len(differences.twice) for differences in found),
    )


async def measure_kill(directory: Path, events: int) -> KillResult:
    """Kill the server after so many events of a run, start it again, and use the thread."""
    thread, store, seen = new_id("thread"), directory / "ambient.db", list["Frame"]()
    server = await asyncio.to_thread(start, store)
    try:
        async with open_stream(f"{server.url}/", "POST", body=run_input(thread, "count 100000 every 5ms")) as stream:
            seen += await stream.read(events)
            server.process.kill()
    except CUT:
        pass
    await asyncio.to_thread(server.wait)
    with await asyncio.to_thread(start, store) as again:
        began = time.monotonic()
        while True:
            async with open_stream(f"{again.url}/", "POST", body=run_input(thread, "count 3")) as stream:
                if stream.status == 200:
                    usable_after = time.monotonic() - began
                    await stream.rest()
                    break
            await asyncio.sleep(LEASE / 100)
        log = await history(again.url, thread)
    kept = {frame.raw for frame in log}
    return KillResult(
        server=NAME,
        seen=len(seen),
        kept=sum(frame.raw in kept for frame in seen),
        ended=ending(split_runs(events_of(log))[0]),
        usable_after=usable_after,
    )
