"""The shared state of a thread, folded from its events, and the rule that says which of its keys clients may see and write.

JSON Patch is applied here and nowhere else (`apply_patch`): what an agent sends is followed as the official client follows it,
and what a client sends is checked first (`SharedState.patch`). It is written out because agents stream patches token by token:
only the containers on the way to a change are copied, where a general library copies the whole state each time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from ambient_runner.errors import InvalidPatch, PatchConflict
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.pointers import keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ambient_runner.protocol.events import Event

    Hidden = Collection[str] | Callable[[str], bool]

__all__ = ["HIDDEN", "SharedState", "apply_patch", "is_hidden", "same", "visible_patch"]

HIDDEN = frozenset({"messages"})
"""Top-level keys no client sees or writes, whatever the agent: the messages have a projection of their own."""

_MAX_OPERATIONS = 1_000
_MAX_SIZE = 1 << 20
_MAX_COPIED = 8 << 20
_POISON = frozenset({"__proto__", "constructor", "prototype"})
_POINTER = re.compile(r"(/([^~/]|~[01])*)*", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_encode = msgspec.json.Encoder().encode
_NEEDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": None}


def is_hidden(key: str, hidden: Hidden) -> bool:
    """Whether a top-level key is kept from clients.

    An entry of `hidden` is a name, or a prefix when it ends in `*` (`_*`, `temp:*`); `hidden` may also be a function of the key.
    """
    if callable(hidden):
        return key in HIDDEN or hidden(key)
    return key in HIDDEN or any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in hidden)


def apply_patch(document: Any, operations: Sequence[dict[str, Any]], *, limit: int = _MAX_COPIED) -> Any:
    """The document after the patch, all or nothing. Nothing is changed in place: what the patch does not touch is shared.

    `limit` bounds the bytes that `copy` operations may multiply: forty of them could otherwise fill the memory.
    Raises: PatchConflict when it does not apply.
    """
    try:
        copied = 0
        for operation in operations:
            if operation["op"] == "copy":
                copied += _size(_get(document, _segments(operation["from"])))
                if copied > limit:
                    raise PatchConflict
            document = _applied(document, operation)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PatchConflict from error
    return document


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
    elif _is_array(twin) and not over:
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
    if _is_object(container):
        return segment
    if not _is_array(container):
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
    if _is_object(left) and _is_object(right):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if _is_array(left) and _is_array(right):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


def visible_patch(operations: Sequence[dict[str, Any]], hidden: Hidden = ()) -> list[dict[str, Any]]:
    """The part of an agent's patch that clients may see: what it does to hidden keys, or takes from them, is left out."""
    return [shown for operation in operations if (shown := _shown(operation, hidden)) is not None]


def _shown(operation: dict[str, Any], hidden: Hidden) -> dict[str, Any] | None:
    to_hidden, from_hidden = [_names_hidden(operation.get(end), hidden) for end in ("path", "from")]
    if from_hidden or (to_hidden and operation.get("op") != "move"):
        return None
    if to_hidden:
        return {"op": "remove", "path": operation["from"]}
    if operation.get("path") == "" and "value" in operation:
        return {**operation, "value": SharedState(operation["value"]).visible(hidden)}
    return operation


def _names_hidden(pointer: Any, hidden: Hidden) -> bool:
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        return False
    return is_hidden(keys_of(pointer)[0], hidden)


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

    def visible(self, hidden: Hidden = ()) -> Any:
        """What clients see: everything but the hidden top-level keys."""
        value = self.value
        if not _is_object(value):
            return value
        return {key: item for key, item in value.items() if not is_hidden(key, hidden)}

    def replace_visible(self, incoming: Any, hidden: Hidden = ()) -> Any:
        """The whole state after a client sent its own: visible keys are replaced, hidden ones stay as they are here.

        Absent or empty changes nothing; so does one that is not an object while there are keys to keep.
        """
        if incoming is None or incoming == {}:
            return self.value
        kept = self._kept(hidden)
        if not _is_object(incoming):
            return self.value if kept else incoming
        return {**kept, **{key: item for key, item in incoming.items() if not is_hidden(key, hidden)}}

    def patch(self, operations: Any, hidden: Hidden = ()) -> Any:
        """The whole state after a client's patch of the visible state.

        Raises: InvalidPatch when it is not RFC 6902 or names a key that poisons JavaScript objects; PatchConflict when it does not apply,
        touches a hidden key, makes the state larger than 1 MiB, or something else than an object.
        """
        checked = _checked(operations)
        if any(_names_hidden(one.get(end), hidden) for one in checked for end in ("path", "from")):
            raise PatchConflict
        visible = self.visible(hidden)
        result = apply_patch(visible, checked, limit=_MAX_SIZE)
        return self._accepted(visible, result, hidden)

    def _accepted(self, before: Any, after: Any, hidden: Hidden) -> Any:
        size = _size(after)
        if size > _MAX_SIZE and size > _size(before):
            raise PatchConflict("The state would become larger than 1 MiB.")
        if not _is_object(after):
            return self._not_an_object(after)
        kept = self._kept(hidden)
        if any(is_hidden(key, hidden) for key in after):
            raise PatchConflict
        return {**kept, **after}

    def _not_an_object(self, after: Any) -> Any:
        """An object stays one: agents and clients keep the state by its keys. What a client once sent as something else may stay that."""
        if type(after) is not type(self.value):
            raise PatchConflict('The state has to stay an object. Patch its keys, or give an object for the path "".')
        return after

    def _kept(self, hidden: Hidden) -> dict[str, Any]:
        value = self.value
        return {key: item for key, item in value.items() if is_hidden(key, hidden)} if _is_object(value) else {}


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
    if not _POINTER.fullmatch(pointer) or not _POISON.isdisjoint(pointer.split("/")):
        raise InvalidPatch


def _has_poison(value: Any) -> bool:
    """Whether an object anywhere inside has the key `__proto__`."""
    if _is_object(value):
        return "__proto__" in value or any(map(_has_poison, value.values()))
    return _is_array(value) and any(map(_has_poison, value))
