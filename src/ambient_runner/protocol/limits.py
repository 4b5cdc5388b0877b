"""Bounds on the size and depth of events, and the CUSTOM `ambient:dropped` event that replaces what exceeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import Custom, Event
from ambient_runner.protocol.reserved_events import PlatformEvent
from ambient_runner.protocol.strict_json import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "MAX_EVENT_DEPTH",
    "MAX_MESSAGE_DEPTH",
    "MAX_STATE_DEPTH",
    "dropped_event",
    "dropped_tool_names",
    "dropped_tools",
    "is_dropped_event",
    "nesting_depth",
]

MAX_STATE_DEPTH = MAX_DEPTH - 1
"""Levels of a state. A request, and the event that carries a state, add one level around it."""
MAX_MESSAGE_DEPTH = MAX_DEPTH - 4
"""Levels of a value in a message. A request adds up to four around it: the messages, the message, its tool calls and the call."""

MAX_EVENT_DEPTH = 128
"""Of a whole event, for what no client sends back. Common JSON parsers stop at about 200 levels."""

_OBJECT: type = dict
_CONTAINERS: frozenset[type] = frozenset({dict, list})


def nesting_depth(value: Any, limit: int = MAX_DEPTH) -> int:
    """Return how many objects and arrays are inside one another, counted up to `limit` + 1.

    Counted without recursion, which interpreters stop at different depths.
    """
    depth = -1
    layer: list[Any] = [[value]]
    while layer and depth <= limit:
        depth += 1
        inside = [item for node in layer for item in (node.values() if type(node) is _OBJECT else node)]
        layer = [item for item in inside if type(item) in _CONTAINERS]
    return depth


MAX_EVENT_BYTES = 8 << 20
"""Encoded size of one event. The official client refuses an SSE event of 10 MiB."""

_DROPPED_NAME = "ambient:dropped"
_TOOLS = "TOOLS"
"""The `type` of the event if tools of the client were left out, and not an event."""
_MAX_TYPE_LENGTH = 64


def dropped_event(event_type: str, reason: str, **more: Any) -> PlatformEvent:
    """Return the event that replaces a dropped event of this type. `docs/reference/events.md` lists the reasons."""
    value = {"type": event_type[:_MAX_TYPE_LENGTH], "reason": reason, **more}
    return PlatformEvent(name=_DROPPED_NAME, value=value)


def is_dropped_event(event: Event) -> bool:
    return isinstance(event, Custom) and event.name == _DROPPED_NAME


def dropped_tools(reason: str, names: Sequence[str]) -> list[Event]:
    """Return the event that names tools of the client that the agent does not get; nothing for no names."""
    return [dropped_event(_TOOLS, reason, names=list(names))] if names else []


def dropped_tool_names(event: Event) -> list[str]:
    """Return the tools of the client that an event of `dropped_tools` names; nothing for any other event."""
    value: Any = event.value if isinstance(event, Custom) and event.name == _DROPPED_NAME else None
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") != _TOOLS:
        return []
    names: Any = cast("dict[str, Any]", value).get("names")
    return [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else []
