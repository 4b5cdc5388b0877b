"""Activities for the audience `safe`: their names and progress, not their bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ambient_runner.protocol.events import JsonPatch

__all__ = ["safe_activity", "safe_activity_patch"]

_PROGRESS = frozenset({"name", "percent", "phase", "progress", "state", "status", "step", "title", "total"})
"""Members of an activity that name it or tell its progress."""
_MAX_TEXT_LENGTH = 100


def safe_activity(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an activity with its name and progress only."""
    shown = {key: _shown_value(value) for key, value in content.items() if key in _PROGRESS}
    return {"redacted": True, "reason": "activity", "type": "object", **shown}


def safe_activity_patch(patch: JsonPatch) -> JsonPatch:
    """Return the part of a patch that changes the name or progress of an activity, for content that `safe_activity` returned."""
    return [safe for operation in patch for safe in _safe_operation(operation)]


def _safe_operation(operation: dict[str, Any]) -> JsonPatch:
    path = operation.get("path")
    if path == "" and operation.get("op") in {"add", "replace"} and isinstance(operation.get("value"), dict):
        return [{"op": "replace", "path": "", "value": safe_activity(operation["value"])}]
    if not isinstance(path, str) or path[:1] != "/" or path[1:] not in _PROGRESS:
        return []
    match operation.get("op"):
        case "add" | "replace":
            return [{"op": "add", "path": path, "value": _shown_value(operation.get("value"))}]
        case "copy" | "move":
            return [{"op": "add", "path": path, "value": None}]
        case "remove":
            return [{"op": "remove", "path": path}]
        case _:
            return []


def _shown_value(value: Any) -> Any:
    """Return a number, a flag or a short text as it is; None for anything else, which is a body."""
    is_short = isinstance(value, str) and len(value) <= _MAX_TEXT_LENGTH
    return value if is_short or isinstance(value, bool | int | float) else None
