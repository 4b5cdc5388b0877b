"""The shared state of a thread, folded from its events, and the rule for which of its keys clients may see and write.

`json_patch.py` applies patches. Those of an agent are applied as they are; those of a client are checked first (`with_client_patch`).
Every state is bounded: it fits into one event, and nests no deeper than a client can send back.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import InvalidPatch, PatchConflict, PayloadTooLarge
from ambient_runner.projections.json_patch import (
    MAX_STATE_BYTES,
    PatchedDocument,
    PatchTooLarge,
    apply_patch,
    encoded_size,
    is_array,
    is_object,
)
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.json_pointer import is_pointer, parse_pointer
from ambient_runner.protocol.limits import MAX_STATE_DEPTH, MAX_VALUES, count_values, nesting_depth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ambient_runner.projections.state_patch import KeyChange
    from ambient_runner.protocol.events import Event

    HiddenKeys = Collection[str] | Callable[[str], bool]

__all__ = ["ALWAYS_HIDDEN", "SharedState", "is_hidden", "is_single_visible_operation", "visible_patch"]

ALWAYS_HIDDEN = frozenset({"messages"})
"""Top-level keys that no client sees or writes, for any agent. The messages have a projection of their own."""

_MAX_OPERATIONS = 1_000
_MAX_CLIENT_STATE_BYTES = 1 << 20
_PROTOTYPE_KEYS = frozenset({"__proto__", "constructor", "prototype"})
_PROTOTYPE_KEY_REFUSED = "The keys `__proto__`, `constructor` and `prototype` are not allowed. Use other names."
_OPERANDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": None}


def is_hidden(key: str, hidden: HiddenKeys) -> bool:
    """Return True if a top-level key is hidden from clients.

    An entry of `hidden` is a name, or a prefix when it ends in `*` (`_*`, `temp:*`); `hidden` may also be a function of the key.
    """
    return _hidden_test(hidden)(key)


def _hidden_test(hidden: HiddenKeys) -> Callable[[str], bool]:
    """Return the function that tells if a top-level key is hidden: made once, because states have up to 100,000 keys."""
    if callable(hidden):
        return lambda key: key in ALWAYS_HIDDEN or hidden(key)
    return _test_of_names(frozenset(hidden))


@lru_cache(64)
def _test_of_names(hidden: frozenset[str]) -> Callable[[str], bool]:
    """Cached, because it is needed for every patch."""
    names = ALWAYS_HIDDEN.union(name for name in hidden if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in hidden if name.endswith("*"))
    return (lambda key: key in names or key.startswith(prefixes)) if prefixes else names.__contains__


def is_single_visible_operation(operations: Any, hidden: HiddenKeys = ()) -> bool:
    """Return True for a patch of one operation that clients may see as it is. Faster than `visible_patch`."""
    if len(operations) != 1:
        return False
    (operation,) = operations
    if not is_object(operation) or "from" in operation:
        return False
    path = operation.get("path")
    return type(path) is str and path[:1] == "/" and not _is_hidden_path(path, _hidden_test(hidden))


def visible_patch(operations: Sequence[dict[str, Any]], hidden: HiddenKeys = ()) -> list[dict[str, Any]]:
    """Return the part of an agent's patch that clients may see: operations to or from hidden keys are left out."""
    test = _hidden_test(hidden)
    return [visible for operation in operations if (visible := _visible_operation(operation, test)) is not None]


def _visible_operation(operation: dict[str, Any], hidden: Callable[[str], bool]) -> dict[str, Any] | None:
    to_hidden = _is_hidden_path(operation.get("path"), hidden)
    from_hidden = "from" in operation and _is_hidden_path(operation["from"], hidden)
    if from_hidden or (to_hidden and operation.get("op") != "move"):
        return None
    if to_hidden:
        return {"op": "remove", "path": operation["from"]}
    if operation.get("path") == "" and "value" in operation:
        return {**operation, "value": SharedState(operation["value"]).visible_part(hidden)}
    return operation


def _is_hidden_path(pointer: Any, hidden: Callable[[str], bool]) -> bool:
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        return False
    end = pointer.find("/", 1)
    return hidden(parse_pointer(pointer if end < 0 else pointer[:end])[0])


class SharedState:
    """The state so far. `value` includes hidden keys. Methods that return a state do not change this one."""

    __slots__ = ("_document", "_is_size_exact", "_max_depth", "_max_size", "_max_values", "failed_count")

    def __init__(self, value: Any = msgspec.UNSET, *, failed_count: int = 0) -> None:
        self._document = PatchedDocument({} if value is msgspec.UNSET else value)
        self.failed_count = failed_count
        """Number of events that did not apply or exceeded the bounds. The official client ignores the former too."""
        # Upper bounds of size, depth and number of values, computed on first use, so that a patch does not measure the whole state.
        self._max_size: int | None = None
        self._is_size_exact = False
        self._max_depth: int | None = None
        self._max_values: int | None = None

    @property
    def value(self) -> Any:
        """The whole state. No later event changes what this returned, so the next patch after a read copies what it changes."""
        return self._document.freeze()

    @classmethod
    def from_stored(cls, value: Any, *, failed_count: int = 0) -> SharedState:
        """Return a stored state, which may be older than the bounds, without the keys that nest too deep."""
        if nesting_depth(value) <= MAX_STATE_DEPTH:
            return cls(value, failed_count=failed_count)
        members = value.items() if is_object(value) else ()
        return cls(
            {key: item for key, item in members if nesting_depth(item) < MAX_STATE_DEPTH}, failed_count=failed_count + 1
        )

    def apply(self, event: Event) -> str:
        """Fold an event. Return `too_large` or `too_deep` if it was not applied for that reason, else an empty string."""
        match event:
            case StateSnapshot():
                reason = self._apply_snapshot(event.snapshot)
            case StateDelta():
                reason = self._apply_delta(event)
            case _:
                return ""
        self.failed_count += bool(reason)
        return reason

    def try_set_keys(self, changes: Sequence[KeyChange], size: int) -> bool:
        """Fold patches that each set one top-level key to a scalar, in one step. `size` is at least the encoded size of all of them.

        Return False, and change nothing, if the state is no object or might exceed its bounds on the way: `apply` measures it exactly.
        """
        depth, size, values = self._depth_before(), self._size_before() + size, self._values_before() + len(changes)
        if depth > MAX_STATE_DEPTH or size > MAX_STATE_BYTES or values > MAX_VALUES:
            return False
        if not is_object(self._document.root):
            return False
        self.failed_count += self._document.set_keys(changes)
        self._max_size, self._max_depth, self._max_values = size, max(depth, 1), values
        self._is_size_exact = False
        return True

    def _apply_snapshot(self, value: Any) -> str:
        depth = nesting_depth(value)
        if depth > MAX_STATE_DEPTH:
            return "too_deep"
        values = count_values(value)
        if values > MAX_VALUES:
            return "too_large"
        self._document = PatchedDocument(value)
        self._max_size, self._max_depth, self._max_values = None, depth, values
        return ""

    def _apply_delta(self, event: StateDelta) -> str:
        bounds = self._depth_before(), self._size_before(), self._values_before()
        try:
            self._document.apply(event.delta)
        except PatchTooLarge:
            return "too_large"
        except PatchConflict:
            self.failed_count += 1
            return ""
        depth, size, values = _bounds_after(*bounds, event.delta)
        if depth > MAX_STATE_DEPTH and (depth := nesting_depth(self._document.root)) > MAX_STATE_DEPTH:
            self._document.undo()
            return "too_deep"
        if size > MAX_STATE_BYTES and (size := encoded_size(self._document.root)) > MAX_STATE_BYTES:
            self._document.undo()
            if size >= encoded_size(self._document.root):
                return "too_large"
            self._document.apply(event.delta)  # It was larger before.
        if values > MAX_VALUES and (values := count_values(self._document.root)) > MAX_VALUES:
            self._document.undo()
            if values >= count_values(self._document.root, values):
                return "too_large"
            self._document.apply(event.delta)
        self._max_size, self._max_depth, self._max_values = size, depth, values
        self._is_size_exact = False
        return ""

    def _depth_before(self) -> int:
        return nesting_depth(self._document.root) if self._max_depth is None else self._max_depth

    def _values_before(self) -> int:
        return count_values(self._document.root) if self._max_values is None else self._max_values

    def _size_before(self) -> int:
        return self.measure_size() if self._max_size is None else self._max_size

    def measure_size(self, enough: int = 0) -> int:
        """Return the size of the state as JSON, in bytes; an upper bound if that is at most `enough`, which costs nothing."""
        if self._max_size is None or (self._max_size > enough and not self._is_size_exact):
            self._max_size, self._is_size_exact = encoded_size(self._document.root), True
        return self._max_size

    def copy(self) -> SharedState:
        copied = SharedState(self.value, failed_count=self.failed_count)
        copied._max_size, copied._max_depth = self._max_size, self._max_depth
        copied._max_values, copied._is_size_exact = self._max_values, self._is_size_exact
        return copied

    def visible_part(self, hidden: HiddenKeys = ()) -> Any:
        """Return what clients see: everything but the hidden top-level keys."""
        value = self.value
        if not is_object(value):
            return value
        test = _hidden_test(hidden)
        return {key: item for key, item in value.items() if not test(key)}

    def with_client_state(self, incoming: Any, hidden: HiddenKeys = ()) -> Any:
        """Return the whole state after a client sent its own: visible keys are replaced, hidden ones stay.

        An absent or empty state changes nothing; nor does one that is not an object while there are hidden keys.
        Raises: InvalidPatch if it has keys that change JavaScript prototypes, as a patch with them is refused. Those that the agent has
        set stay; PayloadTooLarge if it would have too many values.
        """
        if incoming is None or incoming == {}:
            return self.value
        if _adds_prototype_key(incoming, self.value):
            raise InvalidPatch(f"`state`: {_PROTOTYPE_KEY_REFUSED}")
        hidden_part = self._hidden_part(hidden)
        if not is_object(incoming):
            return self.value if hidden_part else incoming
        merged = {**hidden_part, **SharedState(incoming).visible_part(hidden)}
        if hidden_part and count_values(merged) > MAX_VALUES:
            raise PayloadTooLarge(f"The state of this thread would have more than {MAX_VALUES:,} values.")
        return merged

    def with_client_patch(self, operations: Any, hidden: HiddenKeys = ()) -> Any:
        """Return the whole state after a client's patch of the visible state.

        Raises: InvalidPatch if it is not RFC 6902 or names a key that changes JavaScript prototypes; PatchConflict if it does not apply,
        touches a hidden key, makes the state larger than 1 MiB, or makes it something else than an object.
        """
        checked = _check_operations(operations)
        test = _hidden_test(hidden)
        if any(_is_hidden_path(operation.get(end), test) for operation in checked for end in ("path", "from")):
            raise PatchConflict
        before = self.visible_part(hidden)
        result = apply_patch(before, checked, limit=_MAX_CLIENT_STATE_BYTES)
        return self._check_patched(before, result, hidden)

    def _check_patched(self, before: Any, after: Any, hidden: HiddenKeys) -> Any:
        size = encoded_size(after)
        if size > _MAX_CLIENT_STATE_BYTES and size > encoded_size(before):
            raise PatchConflict("The state would become larger than 1 MiB.")
        values = count_values(after, _MAX_CLIENT_STATE_BYTES)
        if values > MAX_VALUES and values > count_values(before, values):
            raise PatchConflict(f"The state would have more than {MAX_VALUES:,} values.")
        if not is_object(after):
            return self._check_type_unchanged(after)
        hidden_part = self._hidden_part(hidden)
        if any(map(_hidden_test(hidden), after)):
            raise PatchConflict
        return {**hidden_part, **after}

    def _check_type_unchanged(self, after: Any) -> Any:
        """Return a state that is not an object. Raises: PatchConflict if its type changed: an object is addressed by its keys."""
        if type(after) is not type(self.value):
            raise PatchConflict('The state must stay an object. Patch its keys, or send an object for the path "".')
        return after

    def _hidden_part(self, hidden: HiddenKeys) -> dict[str, Any]:
        value, test = self.value, _hidden_test(hidden)
        return {key: item for key, item in value.items() if test(key)} if is_object(value) else {}


def _bounds_after(depth: int, size: int, values: int, operations: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """Return upper bounds of depth, size and number of values after a patch that applies. Only `copy` adds more than the patch has."""
    size += encoded_size(operations)
    for operation in operations:
        inserted = operation.get("value")
        depth = max(depth, operation["path"].count("/") + (depth if "from" in operation else nesting_depth(inserted)))
        values += count_values(inserted)
        if operation["op"] == "copy":
            size, values = MAX_STATE_BYTES + 1, MAX_VALUES + 1
    return depth, size, values


def _check_operations(operations: Any) -> list[dict[str, Any]]:
    if not is_array(operations):
        raise InvalidPatch
    if len(operations) > _MAX_OPERATIONS:
        raise InvalidPatch(f"A patch has at most {_MAX_OPERATIONS:,} operations. Send several.")
    return [_check_operation(operation) for operation in operations]


def _check_operation(operation: Any) -> dict[str, Any]:
    if not is_object(operation):
        raise InvalidPatch
    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERANDS:
        raise InvalidPatch
    needed = _OPERANDS[name]
    if needed is not None and needed not in operation:
        raise InvalidPatch
    _check_pointer(operation.get("path"))
    if needed == "from":
        _check_pointer(operation["from"])
    if needed == "value" and _adds_prototype_key(operation["value"]):
        raise InvalidPatch(_PROTOTYPE_KEY_REFUSED)
    return operation


def _check_pointer(pointer: Any) -> None:
    if not isinstance(pointer, str):
        raise InvalidPatch
    if not is_pointer(pointer):
        raise InvalidPatch
    if not _PROTOTYPE_KEYS.isdisjoint(pointer.split("/")):
        raise InvalidPatch(_PROTOTYPE_KEY_REFUSED)


def _adds_prototype_key(value: Any, known: Any = None) -> bool:
    """Return True if a value has a key that changes the prototype of JavaScript objects, where the known value has none at its place."""
    if is_object(value):
        before = known if is_object(known) else {}
        return any(
            (key in _PROTOTYPE_KEYS and key not in before) or _adds_prototype_key(item, before.get(key))
            for key, item in value.items()
        )
    if is_array(value):
        items_before = known if is_array(known) else ()
        return any(starmap(_adds_prototype_key, zip_longest(value, items_before[: len(value)])))
    return False
