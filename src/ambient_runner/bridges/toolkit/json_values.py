"""Convert a framework's objects to plain JSON values or JSON text, and text to the JSON value it contains. Pure."""

from __future__ import annotations

import json
from typing import Any, cast

import pydantic_core

from ambient_runner.protocol.limits import MAX_EVENT_DEPTH
from ambient_runner.protocol.strict_json import is_too_deep

__all__ = [
    "as_object",
    "parse_json_or_text",
    "to_json_text",
    "to_jsonable",
    "to_jsonable_or_type_name",
    "to_text_or_json",
]


def to_jsonable(value: Any) -> Any:
    """Return a copy as plain JSON values. An object that JSON cannot hold becomes its type's name: its `str` may contain anything.

    Raises: ValueError for a value that contains itself.
    """
    return pydantic_core.to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name)


def to_jsonable_or_type_name(value: Any) -> Any:
    """Return `to_jsonable(value)`, or the type's name for a value that contains itself."""
    try:
        return to_jsonable(value)
    except ValueError:
        return _type_name(value)


def to_json_text(value: Any) -> str:
    """Return `to_jsonable(value)` as compact JSON text. A lone surrogate, which UTF-8 cannot encode, becomes `?`.

    Raises: ValueError for a value that contains itself.
    """
    try:
        return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=_type_name).decode()
    except pydantic_core.PydanticSerializationError as error:
        if UnicodeEncodeError.__name__ not in str(error):
            raise
        return _replace_surrogates(
            json.dumps(to_jsonable(_replace_surrogates(value)), ensure_ascii=False, separators=(",", ":"))
        )


def to_text_or_json(value: Any) -> str:
    """Return text as it is, and any other value as JSON text."""
    return value if isinstance(value, str) else to_json_text(value)


def parse_json_or_text(text: str) -> Any:
    """Return the value of the text if it is JSON, else the text. JSON that is nested too deep to be stored stays text."""
    try:
        return text if is_too_deep(text.encode(errors="replace"), MAX_EVENT_DEPTH) else json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object; an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _replace_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {
                _replace_surrogates(key): _replace_surrogates(item)
                for key, item in cast("dict[Any, Any]", value).items()
            }
        case list() | tuple():
            return [_replace_surrogates(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _type_name(thing: Any) -> str:
    return f"<{type(thing).__name__}>"
