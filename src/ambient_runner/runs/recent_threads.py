"""The threads that this process has lately seen to exist. The first run of any other thread is worth a try in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["RecentThreads"]

_MAX_THREADS = 10_000
"""Threads that are remembered."""


class RecentThreads:
    """A bounded set of threads. One that is no longer in it may still exist: only the store knows."""

    def __init__(self) -> None:
        self._keys: dict[ThreadKey, None] = {}

    def __contains__(self, key: ThreadKey) -> bool:
        return key in self._keys

    def add(self, key: ThreadKey) -> None:
        """Remember the thread as the newest, and forget the oldest if there are too many."""
        self._keys.pop(key, None)
        self._keys[key] = None
        if len(self._keys) > _MAX_THREADS:
            del self._keys[next(iter(self._keys))]
