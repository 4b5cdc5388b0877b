"""Shares each iteration of the event loop between the readers of all threads: they get a few milliseconds, then everything else runs.

A commit of a thousand threads, or a batch for a thousand readers, was sent at once and paused all streams for 70 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

__all__ = ["BYTES_PER_UNIT", "WAKE_COST", "ReaderScheduler", "WaitingReaders"]

_MAX_COST_PER_ITERATION = 512
"""Cost of what is served in one iteration, about 5 ms of work. A reader that is sent a delta costs 1. With a quarter of it, 1,000 live
streams queued for their turn: their slowest events took twice as long."""
BYTES_PER_UNIT = 1 << 11
"""Bytes sent to a reader that cost 1 more."""
WAKE_COST = 16
"""Cost of a reader whose task is woken: it runs in the next iteration."""


class WaitingReaders(Protocol):
    """The readers of one thread."""

    def serve_next(self) -> int:
        """Serve one reader. Return what it cost, or 0 if all are served."""
        ...


class ReaderScheduler:
    """Serves readers at once while the budget of this iteration lasts, and the rest in the next ones: one of each thread at a time, so that
    a thread with many readers does not delay the others."""

    __slots__ = ("_budget", "_due", "_next_iteration")

    def __init__(self) -> None:
        self._due: deque[WaitingReaders] = deque()
        self._budget = _MAX_COST_PER_ITERATION
        self._next_iteration: asyncio.Handle | None = None

    def serve(self, readers: WaitingReaders) -> None:
        """Serve these readers. Must not be called for them again before their `serve_next` has returned 0."""
        self._due.append(readers)
        self._serve_due()

    def _serve_due(self) -> None:
        due = self._due
        try:
            while due and self._budget > 0:
                cost = due[0].serve_next()
                self._budget -= cost
                if cost:
                    due.rotate(-1)
                else:
                    due.popleft()
        finally:
            if self._next_iteration is None and (due or self._budget < _MAX_COST_PER_ITERATION):
                self._next_iteration = asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._next_iteration, self._budget = None, _MAX_COST_PER_ITERATION
        self._serve_due()
