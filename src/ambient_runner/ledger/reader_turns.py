"""The readers of all threads share the turns of the event loop: in each turn a few milliseconds are for them, then all else runs.

A commit of a thousand threads, or a batch for a thousand readers, was sent at once and paused all streams for 70 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

__all__ = ["BYTES_PER_UNIT", "WAKE_COST", "ReaderTurns", "WaitingReaders"]

_TURN_COST = 128
"""What is served in a turn. A reader that is sent a delta costs 1."""
BYTES_PER_UNIT = 1 << 13
"""Bytes sent to a reader that cost 1 more."""
WAKE_COST = 4
"""Cost of a reader whose task is woken: it runs in the next turn."""


class WaitingReaders(Protocol):
    """The readers of one thread."""

    def serve_next(self) -> int:
        """Serve one reader. Return what it cost, or 0 if all are served."""
        ...


class ReaderTurns:
    """Serves readers at once while the turn of the event loop has room for them, and the rest in the next turns: one of each thread at a
    time, so that a thread with many readers does not delay the others."""

    __slots__ = ("_due", "_next_turn", "_room")

    def __init__(self) -> None:
        self._due: deque[WaitingReaders] = deque()
        self._room = _TURN_COST
        self._next_turn: asyncio.Handle | None = None

    def serve(self, readers: WaitingReaders) -> None:
        """Serve these readers. Must not be called for them again before their `serve_next` has returned 0."""
        self._due.append(readers)
        self._serve_due()

    def _serve_due(self) -> None:
        due = self._due
        try:
            while due and self._room > 0:
                cost = due[0].serve_next()
                self._room -= cost
                if cost:
                    due.rotate(-1)
                else:
                    due.popleft()
        finally:
            if self._next_turn is None and (due or self._room < _TURN_COST):
                self._next_turn = asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._next_turn, self._room = None, _TURN_COST
        self._serve_due()
