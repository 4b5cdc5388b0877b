"""The limit on agent processes that wait for an answer. Each keeps its memory while a person decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["WaitingProcessLimit"]


class WaitingProcessLimit:
    """Limits the processes that wait for an answer. Counts the open permission requests of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._request_counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._request_counts)

    def try_enter(self, process: Hashable) -> bool:
        """Count a request of this process. Return False if too many processes wait already."""
        if process not in self._request_counts and len(self._request_counts) >= self._limit:
            return False
        self._request_counts[process] = self._request_counts.get(process, 0) + 1
        return True

    def leave(self, process: Hashable) -> None:
        """Count a request of this process as answered."""
        self._request_counts[process] -= 1
        if not self._request_counts[process]:
            del self._request_counts[process]
