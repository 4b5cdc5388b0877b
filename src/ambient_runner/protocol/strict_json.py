"""JSON as RFC 8259 means it, for bodies from strangers. Python's parser alone takes NaN, duplicate names, lone surrogates and any depth."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

from ambient_runner.errors import InvalidInput

__all__ = ["MAX_DEPTH", "loads", "too_deep"]

MAX_DEPTH = 64

# A bracket, or a whole string; also an unterminated one, to stay linear.
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(body: bytes) -> Any:
    """The JSON value of a body. Raises: InvalidInput, saying what is wrong and where."""
    if too_deep(body):
        raise InvalidInput(f"The body is nested more than {MAX_DEPTH} levels deep.")
    try:
        text = body.decode()
        value: Any = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
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


def too_deep(body: bytes) -> bool:
    """Whether brackets nest too deep, without parsing. Brackets that do not pair are left to the parser, which says where."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _BRACKETS.finditer(body):
        depth += _STEPS.get(found[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InvalidInput(f"The body is ambiguous: an object has two members named {twice[:64]!r}.")
    return members


def _constant(name: str) -> NoReturn:
    raise InvalidInput(f"The body is not JSON: {name} is not a JSON value.")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InvalidInput(f"The number {digits[:32]} is too large.")
    return value


def _int(digits: str) -> int:
    """What fits a double: JavaScript writes 1e20 as 21 digits, but nothing longer than 309."""
    if len(digits) > 309:
        raise InvalidInput(f"The number {digits[:32]}… is too large.")
    return int(digits)


def _refuse_lone_surrogates(value: Any) -> None:
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            _refuse_lone_surrogate(path, value)
        elif isinstance(value, list):
            waiting += [(f"{path}[{at}]", item) for at, item in enumerate(cast("list[Any]", value))]
        elif isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                _refuse_lone_surrogate(path, name)
                waiting.append((f"{path}.{name}".lstrip("."), item))


def _refuse_lone_surrogate(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{path or 'The body'} holds half of a surrogate pair, which is not text.") from error
