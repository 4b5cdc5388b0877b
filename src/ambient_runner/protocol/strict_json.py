"""Strict JSON (RFC 8259) for untrusted bodies. Python's parser alone accepts NaN, duplicate names, lone surrogates and any depth."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

from ambient_runner.errors import InvalidInput

__all__ = ["MAX_DEPTH", "is_too_deep", "loads"]

MAX_DEPTH = 64

# A bracket, or a whole string; also an unterminated one, to stay linear.
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_DEPTH_CHANGES = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(body: bytes) -> Any:
    """Return the JSON value of a body. Raises: InvalidInput, saying what is wrong and where."""
    if is_too_deep(body):
        raise InvalidInput(f"The body is nested more than {MAX_DEPTH} levels deep.")
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
        raise InvalidInput(f"The body is nested more than {MAX_DEPTH} levels deep.") from error
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(value)
    return value


def is_too_deep(body: bytes, limit: int = MAX_DEPTH) -> bool:
    """Return True if brackets nest deeper than `limit`, without parsing. The parser reports unbalanced brackets.

    Counted, because interpreters differ in how deep a parser goes before it raises RecursionError.
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    depth = 0
    for found in _BRACKETS.finditer(body):
        depth += _DEPTH_CHANGES.get(found[0], 0)
        if depth > limit:
            return True
    return False


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        duplicate = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InvalidInput(f"The body is ambiguous: an object has two members named {duplicate[:64]!r}.")
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
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            _refuse_lone_surrogate(path, value)
        elif isinstance(value, list):
            pending += [(f"{path}[{at}]", item) for at, item in enumerate(cast("list[Any]", value))]
        elif isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                _refuse_lone_surrogate(path, name)
                pending.append((f"{path}.{name}".lstrip("."), item))


def _refuse_lone_surrogate(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{path or 'The body'} holds half of a surrogate pair, which is not text.") from error
