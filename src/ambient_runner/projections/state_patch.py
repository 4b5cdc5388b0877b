"""An agent's patches that set one top-level key of the state to a scalar: nearly all of a state that is streamed. Pure.

Such a patch is read without the steps that a general one needs, and many are applied in one step (`SharedState.try_set_keys`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["STATE_DELTA_PREFIX", "DecodedChanges", "KeyChange", "decode_key_changes", "read_key_change"]

KeyChange = tuple[bool, str, Any]
"""True for `add`, False for `replace`; the key; the value."""

STATE_DELTA_PREFIX = b'{"type":"STATE_DELTA",'
_OBJECT: type = dict
_LIST: type = list
_EXACT_TYPES: frozenset[type] = frozenset({int, bool, type(None)})
"""Types whose values are the same after they were encoded and decoded, if they can be encoded."""


class _KeyOperation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    op: Literal["add", "replace"]
    path: str
    value: bool | int | float | str | None


class _KeyPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag="STATE_DELTA", tag_field="type"):
    """STATE_DELTA with one such operation. Decoding it is faster than decoding any event."""

    delta: tuple[_KeyOperation]
    timestamp: int | None = None


_decode_patch = msgspec.json.Decoder(_KeyPatch).decode


class DecodedChanges(NamedTuple):
    """The changes of consecutive stored lines."""

    changes: list[KeyChange]
    size: int
    """Bytes of the lines."""
    end: int
    """The index after the last of them."""


def read_key_change(operations: Any, max_chars: int) -> KeyChange | None:
    """Return the change that a patch makes; None if it does anything else, or has a key or a text of more than `max_chars`.

    The value is one that is the same after it was encoded and decoded, unless it cannot be encoded at all.
    """
    if type(operations) is not _LIST or len(operations) != 1:
        return None
    operation = operations[0]
    if type(operation) is not _OBJECT or len(operation) != 3 or "value" not in operation:
        return None
    name, path, value = operation.get("op"), operation.get("path"), operation["value"]
    if type(name) is not str or (name != "replace" and name != "add"):
        return None
    if type(path) is not str or len(path) > max_chars or (key := _top_level_key(path)) is None:
        return None
    return (name == "add", key, value) if _is_short_scalar(value, max_chars) else None


def _is_short_scalar(value: Any, max_chars: int) -> bool:
    kind: type = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _EXACT_TYPES:
        return True
    return len(value) <= max_chars if kind is str else kind is float and math.isfinite(value)


def decode_key_changes(lines: Sequence[bytes], at: int) -> DecodedChanges | None:
    """Return the changes of the lines from this one on, up to the first that is anything else; None if this one is."""
    changes: list[KeyChange] = []
    size, end = 0, at
    while end < len(lines) and (change := _decode_change(lines[end])) is not None:
        changes.append(change)
        size += len(lines[end])
        end += 1
    return DecodedChanges(changes, size, end) if changes else None


def _decode_change(line: bytes) -> KeyChange | None:
    # Two braces: the event and its one operation. Any other patch is seldom decoded in vain.
    if not line.startswith(STATE_DELTA_PREFIX) or line.count(b"{") != 2:
        return None
    try:
        (operation,) = _decode_patch(line).delta
    except msgspec.ValidationError:
        return None
    key = _top_level_key(operation.path)
    return None if key is None else (operation.op == "add", key, operation.value)


def _top_level_key(path: str) -> str | None:
    """Return the top-level key that a JSON pointer names; None if it names anything else, or has to be unescaped or refused."""
    if path.rfind("/") != 0 or "~" in path or path == "/__proto__":
        return None
    return path[1:]
