"""The values that an adapter stores with a thread for its next runs: the newest of each run, within bounds. Part of the ThreadView."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.projections.transcript import Transcript

__all__ = ["AdapterMemory", "RunMemory"]

_MAX_MEMORIES = 16
_MAX_MEMORY_BYTES = 1 << 20


class RunMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The value that the adapter stored in one run."""

    run: str
    anchor: str
    """Newest message when that run started. A rewind to it, or to an earlier one, removes the run."""
    value: msgspec.Raw


class AdapterMemory:
    """The adapter's values, the newest last. A rewind removes those of the runs that it removes."""

    __slots__ = ("anchor", "runs")

    def __init__(self, runs: Iterable[RunMemory] = (), anchor: str = "") -> None:
        self.runs = tuple(runs)
        self.anchor = anchor
        """Newest message when the last run started."""

    @classmethod
    def from_stored(cls, runs: Iterable[RunMemory], anchor: str) -> AdapterMemory:
        """Return the memory of a checkpoint. It has its own bytes: Raw is a view that would keep the whole checkpoint alive."""
        return cls([replace(memory, value=memory.value.copy()) for memory in runs], anchor)

    def copy(self) -> AdapterMemory:
        return AdapterMemory(self.runs, self.anchor)

    @property
    def value(self) -> Any:
        """The value that the adapter stored last, decoded anew for every caller; None if there is none."""
        return msgspec.json.decode(self.runs[-1].value) if self.runs else None

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(memoryview(memory.value).nbytes for memory in self.runs)

    def store(self, run: str, value: Any) -> None:
        """Store the value of a run, in place of an earlier one."""
        others = [memory for memory in self.runs if memory.run != run]
        memory = RunMemory(run=run, anchor=self.anchor, value=msgspec.Raw(msgspec.json.encode(value)))
        self.runs = (*_newest_that_fit(others), memory)

    def rewind(self, to: str, transcript: Transcript) -> None:
        """Remove the values of the runs after this message, which `transcript` no longer has."""
        self.runs = tuple(
            memory for memory in self.runs if memory.anchor != to and transcript.find_message(memory.anchor)
        )


def _newest_that_fit(earlier: list[RunMemory]) -> list[RunMemory]:
    """Return as many of the newest earlier memories as fit the bounds, for a rewind."""
    bytes_left, newest = _MAX_MEMORY_BYTES, list[RunMemory]()
    for memory in reversed(earlier):
        bytes_left -= len(bytes(memory.value))
        if bytes_left < 0 or len(newest) == _MAX_MEMORIES - 1:
            break
        newest.insert(0, memory)
    return newest
