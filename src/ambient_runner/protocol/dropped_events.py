"""CUSTOM `ambient:dropped`: the event that takes the place of what an agent, a server or a client sent and that is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import Custom, Event
from ambient_runner.protocol.reserved_events import PlatformEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dropped_event", "dropped_tool_events", "dropped_tool_names", "is_dropped_event"]

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


def dropped_tool_events(reason: str, names: Sequence[str]) -> list[Event]:
    """Return the event that names tools of the client that the agent does not get; nothing for no names."""
    return [dropped_event(_TOOLS, reason, names=list(names))] if names else []


def dropped_tool_names(event: Event) -> list[str]:
    """Return the tools of the client that an event of `dropped_tool_events` names; nothing for any other event."""
    value: Any = event.value if isinstance(event, Custom) and event.name == _DROPPED_NAME else None
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") != _TOOLS:
        return []
    names: Any = cast("dict[str, Any]", value).get("names")
    return [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else []
