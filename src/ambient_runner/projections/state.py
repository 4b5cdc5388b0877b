"""The shared state of a thread, folded from its events, and the rule that says which of its keys clients may see and write.

Patches are applied by `patches.py`: those of an agent are followed, and what a client sends is checked first (`SharedState.patch`).
A state has bounds, whoever builds it up: it fits into the one event that tells it, and nests no deeper than a client could send it back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import InvalidPatch, PatchConflict
from ambient_runner.projections.json_patch import MAX_STATE, CopiesTooMuch, apply_patch, is_array, is_object, size_of
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.json_pointer import keys_of
from ambient_runner.protocol.limits import MAX_STATE_DEPTH, levels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ambient_runner.protocol.events import Event

    Hidden = Collection[str] | Callable[[str], bool]

__all__ = ["HIDDEN", "SharedState", "is_hidden", "visible_patch"]

HIDDEN = frozenset({"messages"})
"""Top-level keys no client sees or writes, whatever the agent: the messages have a projection of their own."""

_MAX_OPERATIONS = 1_000
_MAX_SIZE = 1 << 20
_POISON = frozenset({"__proto__", "constructor", "prototype"})
_POINTER = re.compile(r"(/([^~/]|~[01])*)*", re.DOTALL)
_NEEDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": None}


def is_hidden(key: str, hidden: Hidden) -> bool:
    """Whether a top-level key is kept from clients.

    An entry of `hidden` is a name, or a prefix when it ends in `*` (`_*`, `temp:*`); `hidden` may also be a function of the key.
    """
    if callable(hidden):
        return key in HIDDEN or hidden(key)
    return key in HIDDEN or any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in hidden)


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


class SharedState:
    """The state so far: `value` is all of it. The methods that answer with a state do not change this one."""

    __slots__ = ("_depth", "_size", "failed", "value")

    def __init__(self, value: Any = msgspec.UNSET, *, failed: int = 0) -> None:
        self.value: Any = {} if value is msgspec.UNSET else value
        self.failed = failed
        """How many events did not apply, or would have led out of the bounds. The client ignores the former too."""
        # At most so large and so deep, once anybody had to know: patches need not be weighed against the whole state.
        self._size: int | None = None
        self._depth: int | None = None

    @classmethod
    def restored(cls, value: Any, *, failed: int = 0) -> SharedState:
        """A state that was kept before there were bounds: without the keys that nest too deep for any agent to be given."""
        if levels(value) <= MAX_STATE_DEPTH:
            return cls(value, failed=failed)
        members = value.items() if is_object(value) else ()
        return cls({key: item for key, item in members if levels(item) < MAX_STATE_DEPTH}, failed=failed + 1)

    def apply(self, event: Event) -> str:
        """Fold an event. Why it was not taken if that is to be said: `too_large` or `too_deep`; else empty."""
        match event:
            case StateSnapshot():
                reason = self._snapshot(event.snapshot)
            case StateDelta():
                reason = self._delta(event)
            case _:
                return ""
        self.failed += bool(reason)
        return reason

    def _snapshot(self, value: Any) -> str:
        depth = levels(value)
        if depth > MAX_STATE_DEPTH:
            return "too_deep"
        self.value, self._size, self._depth = value, None, depth
        return ""

    def _delta(self, event: StateDelta) -> str:
        try:
            after = apply_patch(self.value, event.delta)
        except CopiesTooMuch:
            return "too_large"
        except PatchConflict:
            self.failed += 1
            return ""
        depth = self._depth_after(event.delta)
        if depth > MAX_STATE_DEPTH and (depth := levels(after)) > MAX_STATE_DEPTH:
            return "too_deep"
        size = self._size_after(event.delta)
        if size > MAX_STATE and (size := size_of(after)) > MAX_STATE and size >= size_of(self.value):
            return "too_large"
        self.value, self._size, self._depth = after, size, depth
        return ""

    def _depth_after(self, operations: Sequence[dict[str, Any]]) -> int:
        """How deep the state is at most after a patch that applies."""
        depth = levels(self.value) if self._depth is None else self._depth
        for one in operations:
            moved = depth if "from" in one else levels(one.get("value"))
            depth = max(depth, one["path"].count("/") + moved)
        return depth

    def _size_after(self, operations: Sequence[dict[str, Any]]) -> int:
        """How large it is at most: more than it says, a patch adds only by copying."""
        if any(one["op"] == "copy" for one in operations):
            return MAX_STATE + 1
        before = size_of(self.value) if self._size is None else self._size
        return before + size_of(operations)

    def copy(self) -> SharedState:
        return SharedState(self.value, failed=self.failed)

    def visible(self, hidden: Hidden = ()) -> Any:
        """What clients see: everything but the hidden top-level keys."""
        value = self.value
        if not is_object(value):
            return value
        return {key: item for key, item in value.items() if not is_hidden(key, hidden)}

    def replace_visible(self, incoming: Any, hidden: Hidden = ()) -> Any:
        """The whole state after a client sent its own: visible keys are replaced, hidden ones stay as they are here.

        Absent or empty changes nothing; so does one that is not an object while there are keys to keep.
        """
        if incoming is None or incoming == {}:
            return self.value
        kept = self._kept(hidden)
        if not is_object(incoming):
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
        size = size_of(after)
        if size > _MAX_SIZE and size > size_of(before):
            raise PatchConflict("The state would become larger than 1 MiB.")
        if not is_object(after):
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
        return {key: item for key, item in value.items() if is_hidden(key, hidden)} if is_object(value) else {}


def _checked(operations: Any) -> list[dict[str, Any]]:
    if not is_array(operations) or len(operations) > _MAX_OPERATIONS:
        raise InvalidPatch
    return [_checked_operation(operation) for operation in operations]


def _checked_operation(operation: Any) -> dict[str, Any]:
    if not is_object(operation):
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
    if is_object(value):
        return "__proto__" in value or any(map(_has_poison, value.values()))
    return is_array(value) and any(map(_has_poison, value))
