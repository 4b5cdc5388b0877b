"""What is too much or makes no sense is left out, and that is said in its place: CUSTOM `ambient:dropped`."""

from __future__ import annotations

from ambient_runner.protocol.events import Custom, Event

__all__ = ["MAX_EVENT", "dropped", "is_dropped"]

MAX_EVENT = 8 << 20
"""Bytes of one event. The official client refuses an SSE event of 10 MiB."""

_NAME = "ambient:dropped"
_LONGEST_KIND = 64


def dropped(kind: str, reason: str) -> Custom:
    """Instead of an event of this type. `docs/reference/events.md` has the reasons."""
    return Custom(name=_NAME, value={"type": kind[:_LONGEST_KIND], "reason": reason})


def is_dropped(event: Event) -> bool:
    return isinstance(event, Custom) and event.name == _NAME
