"""What an adapter remembers for a thread: entries of the ledger that no reader gets.

They are stored as CUSTOM events of a reserved name, in their place among the run's events, because only there are they fenced, redacted,
retained and erased like everything else. Whoever turns entries into something for a reader asks here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

__all__ = ["MEMORY", "is_memory", "is_memory_line", "may_hold_memory"]

MEMORY = "ambient:memory"

_HEAD = b'{"type":"CUSTOM","name":"ambient:memory","value":'


def is_memory(event: Event) -> bool:
    """Whether the event is something an adapter remembers."""
    return type(event) is Custom and event.name == MEMORY


def is_memory_line(line: bytes) -> bool:
    """Whether a stored line is: memory is stored without a time or anything else before its name, so that this can be told."""
    return line.startswith(_HEAD)


def may_hold_memory(frames: bytes) -> bool:
    """Whether there may be such a line in these bytes. One search for many lines, because there nearly never is."""
    return _HEAD in frames
