"""CUSTOM `ambient:dropped`: the event that takes the place of what an agent, a server or a client sent and that is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    Custom,
    Event,
    MessagesSnapshot,
    ReasoningMessageContent,
    StateDelta,
    StateSnapshot,
    TextMessageContent,
    ToolCallArgs,
    ToolCallResult,
    type_of,
)
from ambient_runner.protocol.limits import (
    MAX_EVENT_BYTES,
    MAX_PATCH_OPERATIONS,
    MAX_SNAPSHOT_CHARS,
    MAX_VALUES,
    count_values,
    exceeds_limits,
    max_patch_values,
)
from ambient_runner.protocol.reserved_events import PlatformEvent, to_plain_event

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "drop_long_text",
    "drop_oversized_event",
    "drop_oversized_patch",
    "drop_oversized_snapshot",
    "dropped_event",
    "dropped_tool_events",
    "dropped_tool_names",
    "is_dropped_event",
]

_DROPPED_NAME = "ambient:dropped"
_TOOLS = "TOOLS"
"""The `type` of the event if tools of the client were left out, and not an event."""
_MAX_TYPE_LENGTH = 64


def dropped_event(event_type: str, reason: str, **more: Any) -> PlatformEvent:
    """Return the event that replaces a dropped event of this type. `docs/reference/events.md` lists the reasons."""
    value = {"type": event_type[:_MAX_TYPE_LENGTH], "reason": reason, **more}
    return PlatformEvent(name=_DROPPED_NAME, value=value)


def drop_oversized_patch(event: Event) -> Event:
    """Return the event; `ambient:dropped` for a patch of too many operations, or a state of too many keys. Looks at no value."""
    match event:
        case StateDelta(delta=operations) | ActivityDelta(patch=operations):
            is_long = len(operations) > MAX_PATCH_OPERATIONS
        case StateSnapshot():
            snapshot: Any = event.snapshot
            is_long = type(snapshot) in (dict, list) and len(snapshot) > MAX_VALUES
        case _:
            return event
    return _too_large(event) if is_long else event


def drop_oversized_event(event: Event) -> Event:
    """Return the event; `ambient:dropped` for one of too many values, and as `drop_oversized_patch`. Decided before redaction."""
    match drop_oversized_patch(event):
        case StateDelta(delta=operations) | ActivityDelta(patch=operations):
            is_wide = count_values(operations) > max_patch_values(len(operations))
        case StateSnapshot(snapshot=value) | ActivitySnapshot(content=value) | Custom(value=value):
            is_wide = count_values(value) > MAX_VALUES
        case kept:
            return kept
    return _too_large(event) if is_wide else event


def drop_oversized_snapshot(snapshot: MessagesSnapshot) -> Event:
    """Return an agent's snapshot; `ambient:dropped` if no client could send its messages back: a body has as many values at most."""
    return _too_large(snapshot) if exceeds_limits(snapshot.messages, max_chars=MAX_SNAPSHOT_CHARS) else snapshot


def drop_long_text(event: Event) -> Event:
    """Return the event; `ambient:dropped` for a delta or a result whose text alone is too large. Decided before redaction."""
    match event:
        case TextMessageContent(delta=text) | ReasoningMessageContent(delta=text) | ToolCallArgs(delta=text):
            return _too_large(event) if len(text) > MAX_EVENT_BYTES else event
        case ToolCallResult(content=str(text)) if len(text) > MAX_EVENT_BYTES:
            return _too_large(event)
        case _:
            return event


def _too_large(event: Event) -> Event:
    return to_plain_event(dropped_event(type_of(event), "too_large"))


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
