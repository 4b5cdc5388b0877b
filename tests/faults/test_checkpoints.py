"""kill -9 while a run writes its checkpoint: it is there with the whole end of the run, or neither is, and nothing is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from ambient_runner.ledger import SqliteLedger, ThreadKey
from ambient_runner.projections.thread_view import ThreadView
from ambient_runner.runs.view_cache import load_view
from tests.e2e.sse import Frame, Truncated, open_stream
from tests.e2e.talk import ending, events_of, history, new_id, numbers, run_input, split_runs, text_of
from tests.machine_speed import unless_hung

from .harness import check_usable, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.ledger import Batch

DYING = "demo=tests.faults.dying_checkpoint:bridge"
LONG = "count 2500"
"""A run with more entries than two checkpoints are apart."""


async def post(url: str, thread: str, seen: list[Frame]) -> bool:
    """Run once and keep what is seen. Return False if the server died meanwhile."""
    try:
        async with open_stream(f"{url}/", "POST", body=run_input(thread, LONG)) as stream:
            async for frame in stream:
                seen.append(frame)  # noqa: PERF401  the others look at it meanwhile
        return True
    except (Truncated, EOFError, ConnectionError):
        return False


async def check_stored(store: Path, thread: str) -> None:
    """The checkpoint is not ahead of the entries, and the thread folded from it is the one folded from all of them."""
    key = ThreadKey("default", "local", thread)
    async with SqliteLedger(store) as ledger:
        info = await ledger.get_thread(key)
        assert info is not None
        found = await ledger.get_checkpoint(key)
        assert found is None or found.seq <= info.last
        whole, batches = ThreadView(), list["Batch"]()
        while more := await ledger.read_batches(key, batches[-1].last if batches else 0):
            batches += more
        for batch in batches:
            whole.apply(batch)
        assert (await load_view(ledger, key)).to_checkpoint() == whole.to_checkpoint()


@pytest.mark.parametrize("when", ["before", "after", "committed"])
async def test_f01_kill_in_the_transaction_of_a_checkpoint_loses_nothing(tmp_path: Path, when: str) -> None:
    store, thread, seen = tmp_path / "ambient.db", new_id("thread"), list[Frame]()
    with unless_hung():
        server = await start_server(store, DYING, env={"DIE_AT": "3", "DIE_WHEN": when})
        while await post(server.url, thread, seen):
            pass
        await anyio.to_thread.run_sync(server.wait)
        with await start_server(store) as restarted:
            frames = await history(restarted.url, thread)
            stored = {frame.id: frame.data for frame in frames}
            assert all(stored[frame.id] == frame.data for frame in seen if frame.id and frame.id in stored)
            runs = split_runs(events_of(frames))
            assert [text_of(events) for events in runs] == [numbers(2500)] * 3
            ends = [ending(events) for events in runs]
            assert ends == ["success", "success", "success" if when == "committed" else "run_abandoned"]
            await check_usable(restarted.url, thread)
        await check_stored(store, thread)


async def test_f01_kills_at_random_moments_of_runs_with_checkpoints_lose_nothing(tmp_path: Path, long: bool) -> None:
    store, thread, dice = tmp_path / "ambient.db", new_id("thread"), random.Random(11)
    whole = 0
    with unless_hung():
        for _ in range(10 if long else 2):
            seen = list[Frame]()
            server = await start_server(store)
            async with anyio.create_task_group() as tasks:

                async def talk(url: str = server.url, seen: list[Frame] = seen) -> None:
                    while await post(url, thread, seen):
                        pass

                tasks.start_soon(talk)
                while len(seen) < dice.randint(2_000, 8_000):
                    await anyio.sleep(0.001)
                server.process.kill()
            await anyio.to_thread.run_sync(server.wait)
            with await start_server(store) as restarted:
                runs = split_runs(events_of(await history(restarted.url, thread)))
                assert len(runs) > whole
                whole = len(runs)
                for events in runs:
                    assert text_of(events) == numbers(text_of(events).count(" "))
                await check_usable(restarted.url, thread)
            await check_stored(store, thread)
