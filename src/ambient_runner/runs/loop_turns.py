"""Time that the events of one run take from the event loop. After some milliseconds other tasks run, even if the agent never awaits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["MAX_BUSY_SECONDS", "BusyTime"]

_T = TypeVar("_T")

MAX_BUSY_SECONDS = 0.005
"""Seconds of work on events after which other tasks may run: large events take milliseconds each."""
_ITERATIONS_AFTER_BUSY = 3
"""Iterations of the event loop that others get then: a timer or a socket that is ready wakes its task one iteration later."""


class BusyTime:
    """The work on one run's events since other tasks had turns: `with` it, the time of the block is added.

    Deltas are not measured: a clock would cost more than they do.

    Attributes:
        seconds: Compare it with `MAX_BUSY_SECONDS` where a call of `take_turns` would cost too much.
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
                await self.take_turns()
                return end.value
            await self.take_turns()

    async def take_turns(self) -> None:
        """Let other tasks run if the work has taken long enough."""
        if self.seconds > MAX_BUSY_SECONDS:
            self.seconds = 0.0
            for _ in range(_ITERATIONS_AFTER_BUSY):
                await asyncio.sleep(0)
