"""Size of an event that is still a model or a mapping: counted before it is converted, because the conversion of a large one takes seconds.

Only what surely exceeds a limit is dropped here. `dropped_events.py` counts our own events, and the size of their lines decides last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import pydantic

from ambient_runner.protocol.dropped_events import dropped_event
from ambient_runner.protocol.limits import (
    MAX_EVENT_BYTES,
    MAX_PATCH_OPERATIONS,
    MAX_SNAPSHOT_CHARS,
    SCALAR_TYPES,
    exceeds_limits,
    max_patch_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.reserved_events import PlatformEvent

__all__ = ["limit_event"]

_Source = TypeVar("_Source", bound="pydantic.BaseModel | Mapping[str, Any]")

_PATCH_MEMBERS = frozenset({("STATE_DELTA", "delta"), ("ACTIVITY_DELTA", "patch")})
_DEBUG_MEMBERS = frozenset({"raw_event", "rawEvent"})
_OPTIONAL_MEMBERS = _DEBUG_MEMBERS | {"metadata", "result", "input"}
"""Members without which an event is still complete."""
_REQUIRED_PREFIXES = ("TEXT_", "TOOL_CALL_", "REASONING_", "THINKING_", "STEP_", "RUN_", "SUBAGENT_")
"""Types of events that others depend on: they are converted without what is optional. The pipeline drops their long texts."""


def limit_event(source: _Source) -> _Source | PlatformEvent:
    """Return the event, without optional members that exceed the limits; `ambient:dropped` if others do."""
    members = vars(source) if isinstance(source, pydantic.BaseModel) else source
    kind = members.get("type")
    if not isinstance(kind, str):
        return source  # The conversion reports it.
    name = str(getattr(kind, "value", kind))
    oversized = [
        member
        for member, value in members.items()
        if type(value) not in SCALAR_TYPES and member != "type" and _is_oversized(name, member, value)
    ]
    if not oversized:
        return source
    if _is_droppable(name) and not _DEBUG_MEMBERS.issuperset(oversized):
        return dropped_event(name, "too_large")
    optional = {"event"} | _OPTIONAL_MEMBERS if name == "RAW" else _OPTIONAL_MEMBERS
    return _without_members(source, [member for member in oversized if member in optional])


def _is_oversized(event_type: str, member: str, value: Any) -> bool:
    if type(value) is str:
        return len(value) > MAX_EVENT_BYTES
    if (event_type, member) in _PATCH_MEMBERS and type(value) is list:
        count = len(cast("list[Any]", value))
        return count > MAX_PATCH_OPERATIONS or exceeds_limits(value, max_patch_values(count))
    if (event_type, member) == ("MESSAGES_SNAPSHOT", "messages"):
        return exceeds_limits(value, max_chars=MAX_SNAPSHOT_CHARS)
    return exceeds_limits(value)


def _is_droppable(event_type: str) -> bool:
    return event_type == "TOOL_CALL_RESULT" or not (event_type == "RAW" or event_type.startswith(_REQUIRED_PREFIXES))


def _without_members(source: _Source, names: list[str]) -> _Source:
    removed = dict.fromkeys(names)
    if isinstance(source, pydantic.BaseModel):
        return cast("_Source", source.model_copy(update=removed))
    return cast("_Source", {**source, **removed})
