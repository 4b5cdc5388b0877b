"""JSON Patch (RFC 6902), the only implementation here. An agent's patches are applied as in the official client.

Agents stream patches token by token, so only the containers on the path to a change are copied; a general
library copies the whole document each time. `state.py` decides which patches of a client are accepted.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from ambient_runner.errors import PatchConflict
from ambient_runner.protocol.json_pointer import parse_pointer
from ambient_runner.protocol.limits import MAX_EVENT_BYTES, MAX_MESSAGE_DEPTH, nesting_depth

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_STATE_BYTES",
    "PatchTooLarge",
    "apply_bounded_patch",
    "apply_patch",
    "encoded_size",
    "is_array",
    "is_object",
    "json_equal",
]

MAX_STATE_BYTES = MAX_EVENT_BYTES
"""Encoded size of a state: it fits into one event."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_encode = msgspec.json.Encoder().encode


class PatchTooLarge(PatchConflict):
    """The patch copies too much. Copy less, or smaller values."""


def apply_patch(document: Any, operations: Sequence[dict[str, Any]], *, limit: int = MAX_STATE_BYTES) -> Any:
    """Return the document after the patch, all or nothing. Nothing is changed in place: unchanged parts are shared.

    `limit` bounds the bytes that `copy` operations may add: forty of them could otherwise exhaust the memory.
    Raises: PatchConflict if it does not apply.
    """
    try:
        copied = 0
        for operation in operations:
            if operation["op"] == "copy":
                copied += encoded_size(_get_at(document, _parse_path(operation["from"])))
                if copied > limit:
                    raise PatchTooLarge
            document = _apply_operation(document, operation)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PatchConflict from error
    return document


def apply_bounded_patch(document: Any, operations: Sequence[dict[str, Any]]) -> Any:
    """Return the patched document, which becomes part of a message. The result is measured only if the patch can amplify or nests deep.

    Raises: PatchConflict if it does not apply, or if the result is too large or too deep for an event.
    """
    after = apply_patch(document, operations)
    if any(map(_can_amplify, operations)) and (
        nesting_depth(after) > MAX_MESSAGE_DEPTH or encoded_size(after) > MAX_STATE_BYTES
    ):
        raise PatchConflict
    return after


def _can_amplify(operation: dict[str, Any]) -> bool:
    return (
        "from" in operation or operation["path"].count("/") + nesting_depth(operation.get("value")) > MAX_MESSAGE_DEPTH
    )


def _apply_operation(document: Any, operation: dict[str, Any]) -> Any:
    path = _parse_path(operation["path"])
    match operation["op"]:
        case "add":
            return _put_at(document, path, operation["value"])
        case "replace":
            _get_at(document, path)
            return _put_at(document, path, operation["value"], overwrite=True)
        case "remove":
            return _remove_at(document, path)
        case "copy":
            return _put_at(document, path, _get_at(document, _parse_path(operation["from"])))
        case "move":
            return _move_value(document, _parse_path(operation["from"]), path)
        case "test" if _values_equal(_get_at(document, path), operation["value"]):
            return document
        case _:
            raise PatchConflict


def _parse_path(pointer: str) -> list[str]:
    """Return the keys of a JSON pointer. Keys that change the prototype of JavaScript objects are refused, as in the official client."""
    if pointer and not pointer.startswith("/"):
        raise ValueError
    segments = parse_pointer(pointer)
    if "__proto__" in segments or "constructor/prototype" in pointer:
        raise PatchConflict
    return segments


def _get_at(document: Any, path: list[str]) -> Any:
    for segment in path:
        document = document[_resolve_key(document, segment)]
    return document


def _put_at(document: Any, path: list[str], value: Any, *, overwrite: bool = False) -> Any:
    """Return a copy with the value at the path. Arrays get it inserted, unless `overwrite` is set."""
    if not path:
        return value
    first, *rest = path
    changed = document.copy()
    if rest:
        key = _resolve_key(document, first)
        changed[key] = _put_at(document[key], rest, value, overwrite=overwrite)
    elif is_array(changed) and not overwrite:
        changed.insert(_resolve_key(document, first, allow_end=True), value)
    else:
        changed[_resolve_key(document, first)] = value
    return changed


def _remove_at(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    first, *rest = path
    key, changed = _resolve_key(document, first), document.copy()
    if rest:
        changed[key] = _remove_at(document[key], rest)
    else:
        del changed[key]
    return changed


def _move_value(document: Any, source: list[str], target: list[str]) -> Any:
    if target[: len(source)] == source and target != source:
        raise PatchConflict
    return _put_at(_remove_at(document, source), target, _get_at(document, source))


def _resolve_key(container: Any, segment: str, *, allow_end: bool = False) -> Any:
    """Return the segment as a key of this object or an index of this array. `allow_end` permits the index after the last item."""
    if is_object(container):
        return segment
    if not is_array(container):
        raise TypeError
    if allow_end and segment == "-":
        return len(container)
    index = int(segment) if _INDEX.fullmatch(segment) else -1
    if not 0 <= index < len(container) + allow_end:
        raise IndexError
    return index


def json_equal(left: Any, right: Any) -> bool:
    """Return True if both are the same JSON value: 1 equals 1.0, and does not equal true."""
    if left != right:
        return False
    with suppress(TypeError, ValueError, OverflowError, RecursionError):
        if _encode(left) == _encode(right):
            return True  # The usual case, without walking both values.
    return _values_equal(left, right)


def _values_equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(_values_equal(left[key], right[key]) for key in left)
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(map(_values_equal, left, right))
    return left == right


def encoded_size(value: Any) -> int:
    """Return the size of a value as JSON, in bytes."""
    return len(_encode(value))


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
