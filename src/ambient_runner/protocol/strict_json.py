"""Strict JSON (RFC 8259) for untrusted bodies. Python's parser alone accepts NaN, duplicate names, lone surrogates and any depth."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

from ambient_runner.errors import InvalidInput, PayloadTooLarge

__all__ = ["MAX_DEPTH", "MAX_VALUES", "check_value_count", "count_values_in", "has_long_number", "is_too_deep", "loads"]

MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Values of one body, and of one state: objects, arrays, strings, numbers, true, false and null, also those within others."""

_MAX_SHOWN_CHARS = 64
"""Characters of a member's name that an error shows."""
_SLICE_BYTES = 1 << 18
"""Bytes that are looked at in one call: other threads wait for it."""

# A bracket, or a whole string; also an unterminated one, to stay linear.
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_DEPTH_CHANGES = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NO_SLICE_END = rb"\[{ " + b"\t\r\n"
"""Bytes that belong to the next one: an escape, or perhaps an empty array or object."""
_LONG_NUMBER = re.compile(rb"[0-9]{300}")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(body: bytes) -> Any:
    """Return the JSON value of a body. Raises: InvalidInput, saying what is wrong and where; PayloadTooLarge if it has too many values."""
    check_value_count(body)
    if is_too_deep(body):
        raise _too_deep_error()
    try:
        text = body.decode()
        value: Any = json.loads(
            text,
            object_pairs_hook=_parse_object,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The body is not UTF-8: see byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError as error:
        raise _too_deep_error() from error
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(value)
    return value


def check_value_count(body: bytes) -> None:
    """Refuse a body with more than `MAX_VALUES` values, before anything is built of them.

    Raises: PayloadTooLarge; InvalidInput if it begins with too many levels.
    """
    # At least as many as there are: those within strings are counted too.
    if body.count(b",") + body.count(b"[") + body.count(b"{") < MAX_VALUES:
        return
    if count_values_in(body) > MAX_VALUES:
        if is_too_deep(body[:_SLICE_BYTES]):
            raise _too_deep_error()
        raise PayloadTooLarge(
            f"The body has more than {MAX_VALUES:,} values. Send less: large data belongs in a file, or in a text of its own."
        )


def count_values_in(body: bytes, limit: int = MAX_VALUES) -> int:
    """Return the number of values in a JSON text, without parsing it; some number if it is not JSON. Counted until it exceeds `limit`."""
    count, start, is_in_string = 1, 0, False
    while start < len(body):
        end = min(start + _SLICE_BYTES, len(body))
        while end < len(body) and body[end - 1] in _NO_SLICE_END:
            end += 1
        # Without escapes, every other part between quotes is a string.
        parts = body[start:end].replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        outside = b'"'.join(parts[is_in_string::2]).translate(None, b" \t\r\n")
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        count -= outside.count(b"[]") + outside.count(b"{}")
        is_in_string ^= len(parts) % 2 == 0
        start = end
        if count > limit:
            break
    return count


def is_too_deep(body: bytes, limit: int = MAX_DEPTH) -> bool:
    """Return True if brackets nest deeper than `limit`, without parsing. The parser reports unbalanced brackets.

    Counted, because interpreters differ in how deep a parser goes before it raises RecursionError.
    """
    if body.count(b"[") + body.count(b"{") <= limit or _is_clearly_flat(body, limit):
        return False
    depth = 0
    for found in _BRACKETS.finditer(body):
        depth += _DEPTH_CHANGES.get(found[0], 0)
        if depth > limit:
            return True
    return False


def _is_clearly_flat(body: bytes, limit: int) -> bool:
    """Return True if brackets are balanced and nest no deeper than `limit`. Takes a tenth of the time that counting them takes."""
    brackets = _outside_strings(body).translate(None, _NOT_BRACKETS)
    for _ in range(limit // 2):  # Each turn removes the innermost level, or two.
        inner = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not inner or len(inner) == len(brackets):
            return not inner
        brackets = inner
    return False


def has_long_number(body: bytes) -> bool:
    """Return True if a number has so many digits that `loads` may refuse it, without parsing."""
    return _LONG_NUMBER.search(_outside_strings(body)) is not None


def _outside_strings(body: bytes) -> bytes:
    """Return a JSON text without its strings."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Without escapes, every other part between quotes is a string.
    return b"".join(body.split(b'"')[::2])


def _too_deep_error() -> InvalidInput:
    return InvalidInput(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        duplicate = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InvalidInput(f"The body is ambiguous: an object has two members named {duplicate[:_MAX_SHOWN_CHARS]!r}.")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput(f"The body is not JSON: {name} is not a JSON value.")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InvalidInput(f"The number {digits[:32]} is too large.")
    return value


def _parse_int(digits: str) -> int:
    """Return an integer that fits a double: JavaScript writes 1e20 as 21 digits, but nothing longer than 309."""
    if len(digits) > 309:
        raise InvalidInput(f"The number {digits[:32]}… is too large.")
    return int(digits)


def _refuse_lone_surrogates(value: Any) -> None:
    path = _find_lone_surrogate(value)
    if path is not None:
        place = "".join(path).lstrip(".")
        raise InvalidInput(f"{place or 'The body'} holds half of a surrogate pair, which is not text.")


def _find_lone_surrogate(value: Any) -> list[str] | None:
    """Return the steps to the first text that holds half of a surrogate pair; None if there is none.

    They are put together once it is found: a path for every value would take its length in memory for each.
    """
    if isinstance(value, str):
        return None if _is_encodable(value) else []
    if isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            if (steps := _find_lone_surrogate(item)) is not None:
                return [f"[{at}]", *steps]
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            if not _is_encodable(name):
                return []
            if (steps := _find_lone_surrogate(item)) is not None:
                return [f".{name[:_MAX_SHOWN_CHARS]}", *steps]
    return None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
