"""JSON values in one spelling: values that are equal have the same text, whoever wrote them. Pure."""

from __future__ import annotations

import json
from typing import Any, cast

__all__ = ["canonical_json", "canonical_text", "parse_or_text"]


def canonical_json(value: Any) -> str:
    """Return the value as JSON with sorted members and without spaces. A whole number is spelled as one, also if it is a float."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True, separators=(",", ":"), default=repr)


def canonical_text(text: str) -> str:
    """Return JSON text in its canonical spelling; text that is not JSON unchanged."""
    value = parse_or_text(text)
    return text if isinstance(value, str) else canonical_json(value)


def parse_or_text(text: str) -> Any:
    """Return the value of JSON text; text that is not JSON unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _with_whole_numbers(value: Any) -> Any:
    """Return the value with 3 in place of 3.0: some stores of sessions know only one type of number."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            members = cast("dict[Any, Any]", value)
            return {str(name): _with_whole_numbers(item) for name, item in members.items()}
        case list() | tuple():
            return [_with_whole_numbers(item) for item in cast("list[Any]", value)]
        case _:
            return value
