"""Work on large requests, states and threads: in a thread, or with breaks. On the event loop it would delay every stream of the server."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LARGE_BYTES", "TimeSlice", "run_in_thread_if_large"]

LARGE_BYTES = 1 << 16
"""Size of JSON, in bytes, from which work on it can take more than 20 ms: if it has many values."""

_SLICE_SECONDS = 0.005
"""Seconds of work on the event loop after which other tasks may run."""

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
    return await asyncio.get_running_loop().run_in_executor(_executor, lambda: function(*args, **kwargs))


class TimeSlice:
    """The time that a task may work on the event loop before other tasks run. It begins when it is made, and again after each break."""

    __slots__ = ("_started_at",)

    def __init__(self) -> None:
        self._started_at = time.monotonic()

    async def yield_if_spent(self) -> bool:
        """Let other tasks run if the time is spent. Return True if it was."""
        if time.monotonic() - self._started_at <= _SLICE_SECONDS:
            return False
        await asyncio.sleep(0)
        self._started_at = time.monotonic()
        return True
