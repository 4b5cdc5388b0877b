"""What a framework hands over, as plain JSON or as its text, and JSON that someone wrote as text, as what it says. Pure."""

from __future__ import annotations

import json
from typing import Any, cast

import pydantic_core

__all__ = ["json_or_text", "json_text", "plain", "plain_or_name"]


def plain(value: Any) -> Any:
    """A copy in plain JSON. A thing JSON has no form for is named by its type alone: its text may hold anything."""
    return pydantic_core.to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name)


def plain_or_name(value: Any) -> Any:
    """`plain(value)`, or its type's name when it contains itself."""
    try:
        return plain(value)
    except ValueError:
        return _type_name(value)


def json_text(value: Any) -> str:
    """The text of `plain(value)`, compact: JSON that every reader takes. A lone surrogate, which UTF-8 cannot hold, becomes `?`.

    Raises: ValueError for a value that contains itself.
    """
    try:
        return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name).decode()
    except pydantic_core.PydanticSerializationError as error:
        if UnicodeEncodeError.__name__ not in str(error):
            raise
        return _writable(json.dumps(plain(_writable(value)), ensure_ascii=False, separators=(",", ":")))


def json_or_text(text: str) -> Any:
    """What the text says if it is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _writable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_writable(key): _writable(item) for key, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_writable(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _type_name(thing: Any) -> str:
    return f"<{type(thing).__name__}>"
