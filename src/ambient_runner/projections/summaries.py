"""Summaries: what the audience `safe` gets in place of a value. They have its type, size and first-level keys, never its content."""

from __future__ import annotations

import re
from typing import Any, Literal, cast

import msgspec

__all__ = ["Reason", "json_type", "quotes_summary", "summarize_text", "summarize_value", "summary_as_text"]

Reason = Literal[
    "tool_arguments", "tool_result", "run_input", "run_output", "subagent_output", "custom_event", "activity"
]
"""The kinds of value that a summary stands for."""

_MAX_KEYS = 32
_MAX_KEY_LENGTH = 64
_MAX_PARSED_BYTES = 1 << 20
"""Longer texts are not parsed for their keys."""

_SUMMARY_TEXT = re.compile(r'"redacted"\s*:\s*true\s*,\s*"reason"|"reason"[^{}]*"redacted"\s*:\s*true')
"""A summary, also with its members in another order."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def summarize_value(value: Any, reason: Reason) -> dict[str, Any]:
    """Return the summary of a JSON value."""
    keys = list(cast("dict[str, Any]", value)) if isinstance(value, dict) else None
    return _summary(reason, json_type(value), len(msgspec.json.encode(value)), keys)


def summarize_text(text: str, reason: Reason) -> dict[str, Any]:
    """Return the summary of a text, which is that of its JSON value if it has one, as arguments and most results do."""
    encoded = text.encode("utf-8", "surrogatepass")
    stripped = encoded.strip()
    if stripped[:1] == b"{" and len(stripped) <= _MAX_PARSED_BYTES:
        try:
            return _summary(reason, "object", len(encoded), list(_members.decode(stripped)))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return _summary(reason, "string", len(encoded), None)
    is_array = stripped[:1] == b"[" and stripped[-1:] == b"]"
    return _summary(reason, "array" if is_array else "string", len(encoded), None)


def summary_as_text(summary: dict[str, Any]) -> str:
    """Return a summary as JSON text, for fields that hold text."""
    return msgspec.json.encode(summary).decode()


def quotes_summary(text: str) -> bool:
    """Return True if JSON text contains a summary, as an object or inside a string."""
    return _SUMMARY_TEXT.search(text.replace("\\", "")) is not None


def _summary(reason: Reason, kind: str, size: int, keys: list[str] | None) -> dict[str, Any]:
    shown = [key[:_MAX_KEY_LENGTH] for key in (keys or ())[:_MAX_KEYS]]
    return {"redacted": True, "reason": reason, "type": kind, "bytes": size, "keys": shown}


def json_type(value: Any) -> str:
    """Return the name that JSON Schema has for the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"
