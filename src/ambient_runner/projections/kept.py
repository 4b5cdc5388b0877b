"""What an adapter keeps with a thread: entries of the ledger that no reader gets.

They are stored as CUSTOM events of reserved names, in their place among the run's events, because only there are they fenced, redacted,
retained and erased like everything else. Whoever turns entries into something for a reader asks here first. There are two kinds: a value
for the adapter's next run, and the conversation as another server tells it (`restated.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

__all__ = ["MEMORY", "MESSAGES", "is_kept", "is_kept_line", "may_hold_kept"]

MEMORY = "ambient:memory"
"""A value for the next run (`bridges.base.remember`)."""
MESSAGES = "ambient:messages"
"""The messages of the thread as the server behind a RemoteBridge tells them (`restated.restate`)."""

_HEADS = tuple(b'{"type":"CUSTOM","name":"%b","value":' % name.encode() for name in (MEMORY, MESSAGES))
_COMMON = b'{"type":"CUSTOM","name":"ambient:me'


def is_kept(event: Event) -> bool:
    """Whether the event is something an adapter keeps."""
    return type(event) is Custom and event.name in (MEMORY, MESSAGES)


def is_kept_line(line: bytes) -> bool:
    """Whether a stored line is: these are stored without a time or anything else before their name, so that this can be told."""
    return line.startswith(_HEADS)


def may_hold_kept(frames: bytes) -> bool:
    """Whether there may be such a line in these bytes. One search for many lines, because there nearly never is."""
    return _COMMON in frames
