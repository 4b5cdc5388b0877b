"""Bounds on the size and depth of events. `dropped_events.py` has the event that replaces what exceeds them."""

from __future__ import annotations

from typing import Any

from ambient_runner.protocol.strict_json import MAX_DEPTH, MAX_VALUES

__all__ = [
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "MAX_EVENT_DEPTH",
    "MAX_MESSAGE_DEPTH",
    "MAX_PATCH_OPERATIONS",
    "MAX_STATE_DEPTH",
    "MAX_VALUES",
    "count_values",
    "nesting_depth",
]

MAX_STATE_DEPTH = MAX_DEPTH - 1
"""Levels of a state. A request, and the event that carries a state, add one level around it."""
MAX_MESSAGE_DEPTH = MAX_DEPTH - 4
"""Levels of a value in a message. A request adds up to four around it: the messages, the message, its tool calls and the call."""

MAX_EVENT_DEPTH = 128
"""Of a whole event, for what no client sends back. Common JSON parsers stop at about 200 levels."""

MAX_PATCH_OPERATIONS = 10_000
"""Operations of one patch of an agent. Everyone who reads the thread applies all of them at once."""

_OBJECT: type = dict
_CONTAINERS: frozenset[type] = frozenset({dict, list})


def nesting_depth(value: Any, limit: int = MAX_DEPTH) -> int:
    """Return how many objects and arrays are inside one another, counted up to `limit` + 1.

    Counted without recursion, which interpreters stop at different depths.
    """
    if type(value) not in _CONTAINERS:
        return 0
    depth = -1
    layer: list[Any] = [[value]]
    while layer and depth <= limit:
        depth += 1
        inside = [item for node in layer for item in (node.values() if type(node) is _OBJECT else node)]
        layer = [item for item in inside if type(item) in _CONTAINERS]
    return depth


def count_values(value: Any, limit: int = MAX_VALUES) -> int:
    """Return the number of values: this one and all within it. Counted until it exceeds `limit`."""
    count = 1
    layer: list[Any] = [value] if type(value) in _CONTAINERS else []
    while layer:
        count += sum(map(len, layer))
        if count > limit:
            break
        layer = [
            item
            for node in layer
            for item in (node.values() if type(node) is _OBJECT else node)
            if type(item) in _CONTAINERS
        ]
    return count


MAX_EVENT_BYTES = 8 << 20
"""Encoded size of one event. The official client refuses an SSE event of 10 MiB."""
