"""Data kept with a thread between two runs: the graph's checkpoint, and whether the graph knows everything the thread does."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["GraphMemory"]


class GraphMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one thread. It is stored with the thread's events: a rewind restores the previous one, a restart loses nothing."""

    checkpoint: str | None = None
    """The graph's checkpoint when this was written."""
    is_whole: bool = True
    """False while a run is active. If it is still False afterwards, the run was cut off and the graph may lack what clients received."""
    adopted: tuple[str, ...] = ()
    """Ids of a subgraph's messages and tool calls that the graph took over: a subagent's for clients, the model's own for the graph."""
    aliases: dict[str, str] = {}
    """Tool calls with another id for clients: the graph's id by the client's."""
    message_ids: dict[str, str] = {}
    """Messages with another id in the graph: the thread's id by the graph's."""
    attempted: tuple[str, ...] = ()
    """Messages of nodes that were interrupted. A node that continues runs again and streams them again."""
    undelivered: tuple[str, ...] = ()
    """Ids of messages that came together with an answer. The graph gets them after it has continued with that answer."""
    edits_with_answer: tuple[str, ...] = ()
    """Keys of the shared state that were set together with an answer. A graph takes one value for each until its next checkpoint."""

    @classmethod
    def from_stored(cls, stored: Any) -> GraphMemory | None:
        """Return the stored memory; None if there is none or it is not ours."""
        if stored is None:
            return None
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError:
            return None

    def to_stored(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)
