"""What a thread remembers of its graph between two runs: where the graph stands, and whether it knows all the thread knows."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Memory"]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Kept with the thread, so that a rewind brings back the one before, and a restart loses nothing."""

    checkpoint: str | None = None
    """The graph's checkpoint when this was written."""
    is_whole: bool = True
    """False while a run goes on: if that is the last word, the run was cut, and the graph may not know what clients were told."""
    adopted: tuple[str, ...] = ()
    """Messages and calls that a subgraph said and the graph took over: to clients a subagent's, to the model its own."""
    aliases: dict[str, str] = {}
    """Calls that go by another id towards clients: the graph's id by the thread's."""
    unheard: tuple[str, ...] = ()
    """Messages that came beside an answer, which the graph gets when it has gone on with that."""

    beside: tuple[str, ...] = ()
    """Keys of the shared state that were set there beside an answer. A graph takes one value for each, until it has moved on."""

    @classmethod
    def of(cls, stored: Any) -> Memory | None:
        """What was stored; None when there is nothing, or nothing we wrote."""
        if stored is None:
            return None
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError:
            return None

    def to_store(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)
