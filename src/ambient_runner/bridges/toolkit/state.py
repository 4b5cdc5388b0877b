"""Shared state of one run. The store holds all of it; clients get the visible part, always complete.

Frameworks report changes as partial snapshots, key by key or as patches. A client that gets a partial snapshot loses the rest of its
state. So every event from here is a complete snapshot, or a patch from what clients have to what they should have. The state of clients
is limited to the size of one event: the largest keys are omitted until the rest fits, and an `ambient:dropped` event reports each.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from ambient_runner.bridges.toolkit.json_values import as_object, to_json_text, to_jsonable
from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import apply_patch, encoded_size, json_equal
from ambient_runner.projections.state import SharedState, is_hidden, visible_patch
from ambient_runner.protocol.dropped_events import dropped_event
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.json_pointer import format_pointer, parse_pointer
from ambient_runner.protocol.limits import MAX_EVENT_BYTES, MAX_PATCH_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ambient_runner.protocol.events import Event, JsonPatch

__all__ = ["StateStore"]

_MAX_STATE = MAX_EVENT_BYTES - 4096
"""Bytes of state that clients can have. The rest of an event is its envelope."""


class StateStore:
    """The state of one run, and the events that keep clients in step with it.

    Methods that change the state return the events to emit: none if clients see no difference. Values are copied; what JSON cannot hold
    becomes the nearest JSON value.
    Raises: ValueError for a value that contains itself.
    """

    def __init__(self, initial: Any = None, hidden: Callable[[str], bool] = lambda key: False) -> None:
        """`initial` is the state that clients already have. Keys for which `hidden` returns True, and `messages`, are never sent."""
        self._hidden = hidden
        self._sizes: dict[str, int] = {}
        self._omitted: set[str] = set()
        self._reported: set[str] = set()
        self._value = _to_object(initial)
        self._client_state: Any = self._visible_state()
        self._update_sizes(self._value)

    @property
    def value(self) -> dict[str, Any]:
        """The whole state, with hidden keys. Do not change it in place."""
        return self._value

    def update_silently(self, changes: Mapping[str, Any]) -> None:
        """Set these keys without an event; the next event includes them."""
        new = _to_object(changes)
        self._value = {**self._value, **new}
        self._update_sizes(new)

    def remove_silently(self, key: str) -> None:
        """Remove a key, if present, without an event."""
        self._value = {name: item for name, item in self._value.items() if name != key}
        self._update_sizes([key])

    def update_with_snapshot(self, patch: Mapping[str, Any]) -> list[Event]:
        """Set these keys and return a complete snapshot, if anything visible changed."""
        self.update_silently(patch)
        return self.snapshot_if_changed()

    def update_with_patch(self, changes: Mapping[str, Any]) -> list[Event]:
        """Set these keys and return a patch of those that differ."""
        old, new = self._value, _to_object(changes)
        return self.apply_patch(
            [
                _set_operation(key, item, old)
                for key, item in new.items()
                if key not in old or not json_equal(old[key], item)
            ]
        )

    def apply_patch(self, patch: JsonPatch) -> list[Event]:
        """Apply a JSON Patch and return its visible part, or a snapshot where that would leave clients with a different state.

        Raises: PatchConflict if it does not apply; the state is then unchanged.
        """
        patch = to_jsonable(patch)
        self._value = _require_object(apply_patch(self._value, patch))
        self._update_sizes(_changed_keys(patch, [*self._sizes, *self._value]))
        visible = visible_patch(patch, self._is_omitted)
        before = self._client_state
        self._apply_to_client_state(visible)
        is_long = len(visible) > MAX_PATCH_OPERATIONS or _encoded_size(visible) > _MAX_STATE
        if is_long or not json_equal(self._client_state, self._visible_state()):
            self._client_state = before
            return self.snapshot_if_changed()
        return [
            *([] if json_equal(self._client_state, before) else [StateDelta(delta=visible)]),
            *self._dropped_events(),
        ]

    def snapshot(self) -> StateSnapshot:
        """Return everything that clients may see."""
        self._client_state = self._visible_state()
        return StateSnapshot(snapshot=self._client_state)

    def snapshot_if_changed(self) -> list[Event]:
        """Return a complete snapshot if clients have a different state, else nothing."""
        return [
            *([] if json_equal(self._client_state, self._visible_state()) else [self.snapshot()]),
            *self._dropped_events(),
        ]

    def _dropped_events(self) -> list[Event]:
        """Return an `ambient:dropped` event for each key that is omitted from now on."""
        new = self._omitted - self._reported
        self._reported = self._omitted
        return [dropped_event("STATE_DELTA", "too_large") for _ in new]

    def _update_sizes(self, keys: Iterable[str]) -> None:
        """Measure these keys again and decide which keys to omit."""
        for key in keys:
            self._sizes.pop(key, None)
            if key in self._value and not is_hidden(key, self._hidden):
                self._sizes[key] = _encoded_size({key: self._value[key]})
        self._omitted = _keys_over_limit(self._sizes)

    def _is_omitted(self, key: str) -> bool:
        return key in self._omitted or self._hidden(key)

    def _visible_state(self) -> Any:
        return SharedState(self._value).visible_part(self._is_omitted)

    def _apply_to_client_state(self, patch: JsonPatch) -> None:
        """Apply the patch as clients do: they ignore one that does not apply."""
        with suppress(PatchConflict):
            self._client_state = apply_patch(self._client_state, patch)


def _changed_keys(patch: JsonPatch, all_keys: Iterable[str]) -> Iterable[str]:
    """Return the top-level keys that a patch may have changed."""
    pointers = [operation[end] for operation in patch for end in ("path", "from") if end in operation]
    return dict.fromkeys(key for end in pointers for key in ([parse_pointer(end)[0]] if end else all_keys))


def _keys_over_limit(sizes: Mapping[str, int]) -> set[str]:
    """Return the largest keys: as many as must be omitted for the others to fit."""
    total, omitted = sum(sizes.values()), set[str]()
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True) if total > _MAX_STATE else ():
        if total > _MAX_STATE:
            total -= sizes[key]
            omitted.add(key)
    return omitted


def _encoded_size(value: Any) -> int:
    try:
        return encoded_size(value)
    except (ValueError, OverflowError):
        return len(to_json_text(value).encode())  # Its size after the repair that every event gets.


def _set_operation(key: str, item: Any, old: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": "replace" if key in old else "add", "path": format_pointer(key), "value": item}


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _require_object(value: Any) -> dict[str, Any]:
    """Return the value if it is an object. Raises: PatchConflict if the state would no longer be one."""
    if not _is_object(value):
        raise PatchConflict
    return value


def _to_object(value: Any) -> dict[str, Any]:
    return as_object(to_jsonable(value))
