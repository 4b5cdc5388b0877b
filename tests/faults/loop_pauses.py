"""Measure how long the event loop stands still, in CPU time of its thread, as on a quiet machine.

A busy machine stretches CPU time too: its cores share caches, and virtual ones share cores. So a known piece of work is measured beside it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from ambient_runner.cli.garbage_collection import GC_THRESHOLDS
from tests.machine_speed import unless_hung
from tests.world import KEY, ScriptedAgent, run_once, runner_of, user

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run

__all__ = [
    "LoopPauses",
    "WatchedRun",
    "frozen_objects",
    "run_watched",
    "shortest_pause",
    "shortest_pause_of_run",
    "watch_loop_pauses",
]

_PACE = 0.001  # seconds
_RETRIES = 4
_REFERENCE_SECONDS = 0.012
"""CPU time of the reference work on a quiet machine."""
_REFERENCE_SAMPLES = 3


@dataclass
class LoopPauses:
    """The iterations of the event loop so far."""

    longest: float = 0.0
    """Most seconds of CPU time that the loop's thread used between two iterations. After the block: as on a quiet machine."""
    iterations: int = 0


@contextmanager
def frozen_objects() -> Generator[None]:
    """Exclude all existing objects from garbage collection: scanning those of a whole test run takes a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def watch_loop_pauses() -> AsyncGenerator[LoopPauses, None]:
    """Run a task on the event loop while the block runs: often, but not so often that threads get no time.

    Garbage is collected as in `ambient serve`: the objects of the test run are not searched.
    """
    pauses = LoopPauses()
    thresholds = gc.get_threshold()

    async def measure_pauses() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(_PACE)
            now = time.thread_time()
            pauses.longest = max(pauses.longest, now - before)
            pauses.iterations += 1
            before = now

    with nullcontext() if gc.get_freeze_count() else frozen_objects():
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(measure_pauses)
                await asyncio.sleep(0)
                yield pauses
                await asyncio.sleep(2 * _PACE)  # What came last counts too.
                tasks.cancel_scope.cancel()
            pauses.longest /= _cpu_slowness()
        finally:
            gc.set_threshold(*thresholds)


async def shortest_pause(measure: Callable[[], Awaitable[float]], limit: float) -> float:
    """Return the longest pause of the best of several measurements: a busy machine makes some of them worse, and none better."""
    shortest = await measure()
    for _ in range(_RETRIES):
        if shortest < limit:
            break
        shortest = min(shortest, await measure())
    return shortest


@dataclass(frozen=True, kw_only=True)
class WatchedRun:
    """A run during which the pauses of the event loop were measured."""

    seen: list[Event]
    """The events that clients got."""
    state: Any
    """The state of the thread as it was folded anew after the run; None if it was not."""
    longest_pause: float  # seconds


async def run_watched(events: Sequence[Any], *, folds_thread: bool = False) -> WatchedRun:
    """Run an agent that yields these events without an await. With `folds_thread`, the thread is folded anew while the loop is watched."""

    async def script(run: Run) -> AsyncIterator[Any]:
        for event in events:
            yield event

    state = None
    with unless_hung():
        async with runner_of(ScriptedAgent(script)) as runner, watch_loop_pauses() as pauses:
            seen = await run_once(runner, user("u1"))
            if folds_thread:
                runner.views.evict_thread(KEY)
                state = (await runner.view_thread(KEY)).state.value
        return WatchedRun(seen=seen, state=state, longest_pause=pauses.longest)


async def shortest_pause_of_run(events: Sequence[Any], limit: float, *, folds_thread: bool = False) -> float:
    """Return what `shortest_pause` does for runs of an agent that yields these events."""

    async def measure() -> float:
        return (await run_watched(events, folds_thread=folds_thread)).longest_pause

    return await shortest_pause(measure, limit)


def _cpu_slowness() -> float:
    """Return how many times longer than on a quiet machine the reference work takes at this moment; 1 at least."""
    return max(1.0, min(_reference_seconds() for _ in range(_REFERENCE_SAMPLES)) / _REFERENCE_SECONDS)


def _reference_seconds() -> float:
    """Return the CPU time of work as the tests cause it: building, copying and encoding a wide object."""
    started = time.thread_time()
    wide = {f"key{at}": at for at in range(50_000)}
    msgspec.json.encode({**wide, "last": [item for item in wide.values() if type(item) is dict]})
    return time.thread_time() - started
