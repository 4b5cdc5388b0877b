"""JSON helpers of `ag_ui_langgraph`."""

from __future__ import annotations

from typing import Any

from ambient_runner.bridges.toolkit.json_values import to_json_text, to_jsonable_or_type_name

__all__ = ["json_safe_stringify", "make_json_safe"]


def make_json_safe(value: Any) -> Any:
    """Return a copy as plain JSON values. An object that JSON cannot hold becomes its type's name."""
    return to_jsonable_or_type_name(value)


def json_safe_stringify(value: Any) -> str:
    """Return the value as JSON text."""
    return to_json_text(make_json_safe(value))
