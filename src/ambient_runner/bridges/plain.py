"""What a framework hands over, as plain JSON or as its text, and JSON that someone wrote as text, as what it says. Pure."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core

__all__ = ["json_or_text", "json_text", "plain"]


def plain(value: Any) -> Any:
    """A copy in plain JSON. A thing JSON has no form for is named by its type alone: its text may hold anything."""
    return pydantic_core.to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name)


def json_text(value: Any) -> str:
    """The text of `plain(value)`, compact: JSON that every reader takes."""
    return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name).decode()


def json_or_text(text: str) -> Any:
    """What the text says if it is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _type_name(thing: Any) -> str:
    return f"<{type(thing).__name__}>"
