"""Work on large requests, states and threads: in a thread, or with breaks. On the event loop it would delay every stream of the server."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["LARGE_BYTES", "MAX_BUSY_SECONDS", "BusyTime", "TimeSlice", "run_in_thread_if_large"]

LARGE_BYTES = 1 << 16
"""Size of JSON, in bytes, from which work on it can take more than 20 ms: if it has many values."""

MAX_BUSY_SECONDS = 0.005
"""Seconds of work on the event loop after which other tasks may run."""
_ITERATIONS_AFTER_BUSY = 3
"""Iterations of the event loop that others get after work on an agent's events: a timer or a socket that is ready wakes its task one
iteration later."""

_executor = ThreadPoolExecutor(2, thread_name_prefix="ambient-large")
"""Not asyncio's own, whose threads agents can occupy. They start with the first large request."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_thread_if_large(size: int, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return the result of a function that works on so many bytes of JSON: in a thread if they are many.

    It must not use what the event loop changes meanwhile.
    """
    if size <= LARGE_BYTES:
        return function(*args, **kwargs)
    # The thread may still hold its work item when the event loop has the result: it must hold neither the arguments nor the result, for
    # `MessageModels` counts the holders of what it uses again.
    calls, results = [partial(function, *args, **kwargs)], list[_T]()
    await asyncio.get_running_loop().run_in_executor(_executor, lambda: results.append(calls.pop()()))
    return results.pop()


class TimeSlice:
    """The time that a task may work on the event loop before other tasks run. It begins when it is made, and again after each break."""

    __slots__ = ("_started_at",)

    def __init__(self) -> None:
        self._started_at = time.monotonic()

    async def yield_if_spent(self) -> bool:
        """Let other tasks run if the time is spent. Return True if it was."""
        if time.monotonic() - self._started_at <= MAX_BUSY_SECONDS:
            return False
        await asyncio.sleep(0)
        self._started_at = time.monotonic()
        return True


class BusyTime:
    """The work on one run's events since other tasks ran: `with` it, the time of the block is added. Its agent may await in between.

    Deltas are not measured: a clock would cost more than they do.

    Attributes:
        seconds: Compare it with `MAX_BUSY_SECONDS` where a call of `yield_if_spent` would cost too much.
    """

    __slots__ = ("_started_at", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started_at = 0.0

    def __enter__(self) -> None:
        """Count the time of the block. It must not await, nor be within another one."""
        self._started_at = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        self.seconds += time.monotonic() - self._started_at

    async def work_in_slices(self, slices: Generator[None, None, _T]) -> _T:
        """Return the result of work that yields wherever other tasks may run."""
        while True:
            try:
                with self:
                    next(slices)
            except StopIteration as end:
                await self.yield_if_spent()
                return end.value
            await self.yield_if_spent()

    async def yield_if_spent(self) -> None:
        """Let other tasks run if the work has taken long enough."""
        if self.seconds > MAX_BUSY_SECONDS:
            self.seconds = 0.0
            for _ in range(_ITERATIONS_AFTER_BUSY):
                await asyncio.sleep(0)
