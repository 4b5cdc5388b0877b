"""The shared state of a thread, folded from its events, and the rule that says which of its keys clients may see and write.

JSON Patch is applied here and nowhere else (`apply_patch`): what an agent sends is followed as the official client follows it,
and what a client sends is checked first (`SharedState.patch`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

import jsonpatch
import msgspec
from jsonpointer import JsonPointer, JsonPointerException

from ambient_runner.errors import InvalidPatch, PatchConflict
from ambient_runner.protocol.events import StateDelta, StateSnapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.protocol.events import Event

__all__ = ["HIDDEN", "SharedState", "apply_patch", "is_hidden", "visible_patch"]

HIDDEN = frozenset({"messages"})
"""Top-level keys no client sees or writes, whatever the agent: the messages have a projection of their own."""

_MAX_OPERATIONS = 1_000
_MAX_SIZE = 1 << 20
_MAX_COPIED = 8 << 20
_POISON = frozenset({"__proto__", "constructor", "prototype"})
_NEEDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": None}


def is_hidden(key: str, hidden: Collection[str]) -> bool:
    """Whether a top-level key is kept from clients. An entry of `hidden` is a name, or a prefix when it ends in `*` (`_*`, `temp:*`)."""
    return key in HIDDEN or any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in hidden)


def apply_patch(document: Any, operations: Sequence[dict[str, Any]], *, limit: int = _MAX_COPIED) -> Any:
    """The document after the patch, all or nothing; the arguments are not changed.

    `limit` bounds the bytes that `copy` operations may multiply: forty of them could otherwise fill the memory.
    Raises: PatchConflict when it does not apply.
    """
    try:
        return _apply(document, operations, limit)
    except (
        jsonpatch.JsonPatchException,
        JsonPointerException,
        msgspec.MsgspecError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise PatchConflict from error


def _apply(document: Any, operations: Sequence[dict[str, Any]], limit: int) -> Any:
    copied = 0
    result = _Patch([]).apply(document)  # a deep copy, ours to change
    for operation in operations:
        _refuse_poison(operation)
        if operation.get("op") == "copy":
            copied += _size(JsonPointer(operation["from"]).resolve(result))
            if copied > limit:
                raise PatchConflict
        result = _Patch([operation]).apply(result, in_place=True)
    return result


class _Test(jsonpatch.TestOperation):
    """`test` as JSON compares: 1 is not true."""

    def apply(self, obj: Any) -> Any:
        found = self.pointer.resolve(obj) if self.pointer.parts else obj
        if not _same(found, self.operation["value"]):
            raise jsonpatch.JsonPatchTestFailed
        return obj


class _Patch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "test": _Test})


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if _is_object(left) and _is_object(right):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if _is_array(left) and _is_array(right):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


def _refuse_poison(operation: dict[str, Any]) -> None:
    """What the official client refuses, for it would change every object of the page."""
    for pointer in (operation.get("path"), operation.get("from")):
        if isinstance(pointer, str) and ("__proto__" in pointer.split("/") or "constructor/prototype" in pointer):
            raise PatchConflict


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


class SharedState:
    """The state so far: `value` is all of it. The methods that answer with a state do not change this one."""

    __slots__ = ("failed", "value")

    def __init__(self, value: Any = msgspec.UNSET, *, failed: int = 0) -> None:
        self.value: Any = {} if value is msgspec.UNSET else value
        self.failed = failed
        """How many deltas did not apply. The client ignores them too."""

    def apply(self, event: Event) -> None:
        match event:
            case StateSnapshot():
                self.value = event.snapshot
            case StateDelta():
                self._delta(event)
            case _:
                pass

    def _delta(self, event: StateDelta) -> None:
        try:
            self.value = apply_patch(self.value, event.delta)
        except PatchConflict:
            self.failed += 1

    def copy(self) -> SharedState:
        return SharedState(self.value, failed=self.failed)

    def visible(self, hidden: Collection[str] = ()) -> Any:
        """What clients see: everything but the hidden top-level keys."""
        value = self.value
        if not _is_object(value):
            return value
        return {key: item for key, item in value.items() if not is_hidden(key, hidden)}

    def replace_visible(self, incoming: Any, hidden: Collection[str] = ()) -> Any:
        """The whole state after a client sent its own: visible keys are replaced, hidden ones stay as they are here.

        Absent or empty changes nothing; so does one that is not an object while there are keys to keep.
        """
        if incoming is None or incoming == {}:
            return self.value
        kept = self._kept(hidden)
        if not _is_object(incoming):
            return self.value if kept else incoming
        return {**kept, **{key: item for key, item in incoming.items() if not is_hidden(key, hidden)}}

    def patch(self, operations: Any, hidden: Collection[str] = ()) -> Any:
        """The whole state after a client's patch of the visible state.

        Raises: InvalidPatch when it is not RFC 6902 or names a key that poisons JavaScript objects; PatchConflict when it does not apply,
        touches a hidden key, or makes the state larger than 1 MiB.
        """
        checked = _checked(operations)
        if any(is_hidden(segment, hidden) for segment in _top_segments(checked)):
            raise PatchConflict
        visible = self.visible(hidden)
        result = apply_patch(visible, checked, limit=_MAX_SIZE)
        return self._accepted(visible, result, hidden)

    def _accepted(self, before: Any, after: Any, hidden: Collection[str]) -> Any:
        size = _size(after)
        if size > _MAX_SIZE and size > _size(before):
            raise PatchConflict("The state would become larger than 1 MiB.")
        kept = self._kept(hidden)
        if not _is_object(after):
            if kept:
                raise PatchConflict
            return after
        if any(is_hidden(key, hidden) for key in after):
            raise PatchConflict
        return {**kept, **after}

    def _kept(self, hidden: Collection[str]) -> dict[str, Any]:
        value = self.value
        return {key: item for key, item in value.items() if is_hidden(key, hidden)} if _is_object(value) else {}


def visible_patch(operations: Sequence[dict[str, Any]], hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The operations of an agent's delta that clients may see. One that replaces everything keeps only the visible keys."""
    return [_visible_operation(one, hidden) for one in operations if not _names_hidden(one, hidden)]


def _names_hidden(operation: dict[str, Any], hidden: Collection[str]) -> bool:
    pointers = (operation.get("path"), operation.get("from"))
    tops = [pointer.split("/")[1] for pointer in pointers if isinstance(pointer, str) and "/" in pointer]
    return any(is_hidden(top.replace("~1", "/").replace("~0", "~"), hidden) for top in tops)


def _visible_operation(operation: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    if operation.get("path") == "" and "value" in operation:
        return {**operation, "value": SharedState(operation["value"]).visible(hidden)}
    return operation


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _checked(operations: Any) -> list[dict[str, Any]]:
    if not _is_array(operations) or len(operations) > _MAX_OPERATIONS:
        raise InvalidPatch
    return [_checked_operation(operation) for operation in operations]


def _checked_operation(operation: Any) -> dict[str, Any]:
    if not _is_object(operation):
        raise InvalidPatch
    name = operation.get("op")
    if not isinstance(name, str) or name not in _NEEDS:
        raise InvalidPatch
    needed = _NEEDS[name]
    if needed is not None and needed not in operation:
        raise InvalidPatch
    _check_pointer(operation.get("path"))
    if needed == "from":
        _check_pointer(operation["from"])
    if needed == "value" and _has_poison(operation["value"]):
        raise InvalidPatch
    return operation


def _check_pointer(pointer: Any) -> None:
    if not isinstance(pointer, str):
        raise InvalidPatch
    try:
        segments = JsonPointer(pointer).parts
    except JsonPointerException as error:
        raise InvalidPatch from error
    if not _POISON.isdisjoint(segments):
        raise InvalidPatch


def _has_poison(value: Any) -> bool:
    """Whether an object anywhere inside has the key `__proto__`."""
    if _is_object(value):
        return "__proto__" in value or any(map(_has_poison, value.values()))
    return _is_array(value) and any(map(_has_poison, value))


def _top_segments(operations: list[dict[str, Any]]) -> list[str]:
    """The top-level keys a patch names in its paths."""
    pointers = [pointer for one in operations for pointer in (one["path"], one.get("from")) if isinstance(pointer, str)]
    return [str(parts[0]) for parts in (JsonPointer(pointer).parts for pointer in pointers) if parts]
