"""JSON Patch, applied here and nowhere else: what an agent sends is followed as the official client follows it.

It is written out because agents stream patches token by token: only the containers on the way to a change are copied, where a general
library copies the whole document each time. `state.py` says which patches of a client are taken.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from ambient_runner.errors import PatchConflict
from ambient_runner.protocol.json_pointer import keys_of
from ambient_runner.protocol.limits import MAX_EVENT, MAX_MESSAGE_DEPTH, levels

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_STATE",
    "CopiesTooMuch",
    "apply_patch",
    "apply_within_bounds",
    "is_array",
    "is_object",
    "same",
    "size_of",
]

MAX_STATE = MAX_EVENT
"""Bytes of a state: it fits into the one event that tells it."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_encode = msgspec.json.Encoder().encode


class CopiesTooMuch(PatchConflict):
    """The patch copies too much. Copy less, or smaller values."""


def apply_patch(document: Any, operations: Sequence[dict[str, Any]], *, limit: int = MAX_STATE) -> Any:
    """The document after the patch, all or nothing. Nothing is changed in place: what the patch does not touch is shared.

    `limit` bounds the bytes that `copy` operations may multiply: forty of them could otherwise fill the memory.
    Raises: PatchConflict when it does not apply.
    """
    try:
        copied = 0
        for operation in operations:
            if operation["op"] == "copy":
                copied += size_of(_get(document, _segments(operation["from"])))
                if copied > limit:
                    raise CopiesTooMuch
            document = _applied(document, operation)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PatchConflict from error
    return document


def apply_within_bounds(document: Any, operations: Sequence[dict[str, Any]]) -> Any:
    """The same for what becomes part of a message. It is looked at only when the patch multiplies or goes deep.

    Raises: PatchConflict also when it would be too large or too deep to be told.
    """
    after = apply_patch(document, operations)
    if any(map(_is_daring, operations)) and (levels(after) > MAX_MESSAGE_DEPTH or size_of(after) > MAX_STATE):
        raise PatchConflict
    return after


def _is_daring(operation: dict[str, Any]) -> bool:
    return "from" in operation or operation["path"].count("/") + levels(operation.get("value")) > MAX_MESSAGE_DEPTH


def _applied(document: Any, operation: dict[str, Any]) -> Any:
    path = _segments(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"])
        case "replace":
            _get(document, path)
            return _put(document, path, operation["value"], over=True)
        case "remove":
            return _cut(document, path)
        case "copy":
            return _put(document, path, _get(document, _segments(operation["from"])))
        case "move":
            return _moved(document, _segments(operation["from"]), path)
        case "test" if _same(_get(document, path), operation["value"]):
            return document
        case _:
            raise PatchConflict


def _segments(pointer: str) -> list[str]:
    """The keys of a JSON pointer. Those that would change every object of a page are refused, as the official client does."""
    if pointer and not pointer.startswith("/"):
        raise ValueError
    segments = keys_of(pointer)
    if "__proto__" in segments or "constructor/prototype" in pointer:
        raise PatchConflict
    return segments


def _get(document: Any, path: list[str]) -> Any:
    for segment in path:
        document = document[_key(document, segment)]
    return document


def _put(document: Any, path: list[str], value: Any, *, over: bool = False) -> Any:
    """A copy with the value at the path: inserted into arrays, unless it goes `over` what is there."""
    if not path:
        return value
    first, *rest = path
    twin = document.copy()
    if rest:
        key = _key(document, first)
        twin[key] = _put(document[key], rest, value, over=over)
    elif is_array(twin) and not over:
        twin.insert(_key(document, first, end=True), value)
    else:
        twin[_key(document, first)] = value
    return twin


def _cut(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    first, *rest = path
    key, twin = _key(document, first), document.copy()
    if rest:
        twin[key] = _cut(document[key], rest)
    else:
        del twin[key]
    return twin


def _moved(document: Any, source: list[str], target: list[str]) -> Any:
    if target[: len(source)] == source and target != source:
        raise PatchConflict
    return _put(_cut(document, source), target, _get(document, source))


def _key(container: Any, segment: str, *, end: bool = False) -> Any:
    """The segment as a key of this object or an index of this array; `end` allows the place after its last."""
    if is_object(container):
        return segment
    if not is_array(container):
        raise TypeError
    if end and segment == "-":
        return len(container)
    index = int(segment) if _INDEX.fullmatch(segment) else -1
    if not 0 <= index < len(container) + end:
        raise IndexError
    return index


def same(left: Any, right: Any) -> bool:
    """Whether these are the same JSON: 1 is 1.0, and it is not true."""
    if left != right:
        return False
    with suppress(TypeError, ValueError, OverflowError, RecursionError):
        if _encode(left) == _encode(right):
            return True  # To the letter, as nearly always: then nobody need walk through them.
    return _same(left, right)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


def size_of(value: Any) -> int:
    return len(_encode(value))


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
