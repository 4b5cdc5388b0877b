"""Bounds on the size and depth of events, and the CUSTOM `ambient:dropped` event that replaces what exceeds them."""

from __future__ import annotations

from typing import Any

from ambient_runner.protocol.events import Custom, Event
from ambient_runner.protocol.strict_json import MAX_DEPTH

__all__ = ["MAX_DEPTH", "MAX_EVENT", "MAX_MESSAGE_DEPTH", "MAX_STATE_DEPTH", "dropped", "is_dropped", "levels"]

MAX_STATE_DEPTH = MAX_DEPTH - 1
"""Of a state: in a request, and in the event that tells it, there is one level around it."""
MAX_MESSAGE_DEPTH = MAX_DEPTH - 4
"""Of what becomes part of a message: in a request it may be four levels further in, in messages, a message, its calls and a call."""

_OBJECT: type = dict
_CONTAINERS: frozenset[type] = frozenset({dict, list})


def levels(value: Any) -> int:
    """How many objects and arrays are inside one another, counted to one more than may be: not by recursion, which may not get there."""
    depth = -1
    layer: list[Any] = [[value]]
    while layer and depth <= MAX_DEPTH:
        depth += 1
        inside = [item for one in layer for item in (one.values() if type(one) is _OBJECT else one)]
        layer = [item for item in inside if type(item) in _CONTAINERS]
    return depth


MAX_EVENT = 8 << 20
"""Bytes of one event. The official client refuses an SSE event of 10 MiB."""

_NAME = "ambient:dropped"
_LONGEST_KIND = 64


def dropped(kind: str, reason: str) -> Custom:
    """Instead of an event of this type. `docs/reference/events.md` has the reasons."""
    return Custom(name=_NAME, value={"type": kind[:_LONGEST_KIND], "reason": reason})


def is_dropped(event: Event) -> bool:
    return isinstance(event, Custom) and event.name == _NAME
