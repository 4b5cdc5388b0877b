"""Text for the terminal: JSON on one line, and text of agents without what a terminal would interpret. Pure."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "compact_json",
    "escape_json_source",
    "shorten_text",
    "strip_control_chars",
    "to_single_line",
]

_MAX_TEXT_LENGTH = 2000  # characters
_CONTROLS = {code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_DIRECTION_OVERRIDES = {*range(0x2028, 0x202F), *range(0x2066, 0x206A)}
"""Characters that reorder the text after them, so that `gpj.exe` is shown as `exe.jpg`, and Unicode line breaks."""
_STRIPPED = dict.fromkeys(_CONTROLS | _DIRECTION_OVERRIDES)
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in _STRIPPED}


def compact_json(value: Any) -> str:
    """Return the value as JSON on one line, truncated if it is very long."""
    return shorten_text(json.dumps(value, ensure_ascii=False))


def shorten_text(text: str) -> str:
    """Return the text, truncated if it is very long."""
    return text if len(text) <= _MAX_TEXT_LENGTH else text[:_MAX_TEXT_LENGTH] + "…"


def strip_control_chars(text: str) -> str:
    """Return the text without control characters and bidirectional overrides, except line breaks and tabs."""
    return text.translate(_STRIPPED)


def to_single_line(text: str) -> str:
    """Return the text without control characters, on one line: no value can pass for another line of the output."""
    return strip_control_chars(text).replace("\n", " ").replace("\t", " ")


def escape_json_source(source: str) -> str:
    """Return the same JSON with `\\u` escapes for what a terminal would interpret: an encoder escapes only codes below 32."""
    return source.translate(_JSON_ESCAPES)
