"""Bounds on the size and depth of events. `dropped_events.py` has the event that replaces what exceeds them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec
import pydantic

from ambient_runner.protocol.strict_json import MAX_DEPTH, MAX_VALUES

__all__ = [
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "MAX_EVENT_DEPTH",
    "MAX_MESSAGE_DEPTH",
    "MAX_PATCH_OPERATIONS",
    "MAX_SNAPSHOT_CHARS",
    "MAX_STATE_DEPTH",
    "MAX_VALUES",
    "SCALAR_TYPES",
    "count_values",
    "exceeds_limits",
    "max_patch_values",
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

MAX_EVENT_BYTES = 8 << 20
"""Encoded size of one event. The official client refuses an SSE event of 10 MiB."""

MAX_SNAPSHOT_CHARS = 4 * MAX_EVENT_BYTES
"""Characters of an agent's MESSAGES_SNAPSHOT. It repeats the thread, and only what differs is stored as an event."""

_OBJECT: type = dict
_CONTAINERS: frozenset[type] = frozenset({dict, list})
_SEQUENCES: frozenset[type] = frozenset({list, tuple, set, frozenset})
_MAX_COUNTED_DEPTH = 256
"""Levels that are counted: deeper values, and those within themselves, cannot be converted."""
SCALAR_TYPES: frozenset[type] = frozenset({int, float, bool, type(None)})


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


def max_patch_values(operation_count: int) -> int:
    """Return the number of values that a patch may have. An operation adds four: itself, its name, its path and its source."""
    return MAX_VALUES + 4 * operation_count


def exceeds_limits(value: Any, max_values: int = MAX_VALUES, max_chars: int = MAX_EVENT_BYTES) -> bool:
    """Return True if the value has more values, or more characters, than this. Counted only until then.

    Models and Structs are counted as the objects they are encoded to. A value of any other type counts as one, and so does a text on its
    own: compare its length.
    """
    values, chars, layer = 1, 0, [value]
    for _ in range(_MAX_COUNTED_DEPTH):
        inside: list[Any] = []
        for node in layer:
            items = _items_of(node)
            values += len(items)
            if values > max_values or chars > max_chars:
                return True
            for item in items:
                if type(item) is str:
                    chars += len(item)
                elif type(item) not in SCALAR_TYPES:
                    inside.append(item)
            if type(node) is _OBJECT:
                chars += sum(len(name) for name in node if type(name) is str)
        if not inside:
            break
        layer = inside
    return chars > max_chars


def _items_of(node: Any) -> Collection[Any]:
    """Return the values directly within a value. Fields of None are left out, as in JSON."""
    if type(node) is _OBJECT:
        return node.values()
    if type(node) in _SEQUENCES:
        return node
    if isinstance(node, Mapping):
        return cast("Mapping[Any, Any]", node).values()
    if isinstance(node, pydantic.BaseModel):
        fields = {**vars(node), **(node.__pydantic_extra__ or {})}
        return [item for item in fields.values() if item is not None]
    if isinstance(node, msgspec.Struct):
        fields = [node.__struct_config__.tag, *(getattr(node, name) for name in node.__struct_fields__)]
        return [item for item in fields if item is not None]
    return ()
