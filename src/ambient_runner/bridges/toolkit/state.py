"""The shared state of one run, as an adapter keeps it: all of it here, the visible part said to clients, always complete.

Frameworks report changes as partial snapshots, key by key or as patches. A client that gets a partial snapshot loses the rest of its
state, so whatever comes in, what goes out is a whole snapshot, or a patch that leads from what was said before to what is. Clients have
no more of it than one event can tell: the largest keys beyond that are left out, which is said, and cost only themselves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from ambient_runner.bridges.toolkit.json_values import json_text, plain
from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import apply_patch, same, size_of
from ambient_runner.projections.state import SharedState, is_hidden, visible_patch
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.json_pointer import keys_of, pointer_to
from ambient_runner.protocol.limits import MAX_EVENT, dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ambient_runner.protocol.events import Event, JsonPatch

__all__ = ["StateStore"]

_MOST = MAX_EVENT - 4096
"""Bytes of what clients have. The rest of an event is for what is around it."""


class StateStore:
    """The methods that change the state return the events that tell clients: none when no client can see a difference.

    What comes in is copied, and what JSON cannot hold becomes the nearest thing it can.
    Raises: ValueError for a value that contains itself.
    """

    def __init__(self, initial: Any = None, hidden: Callable[[str], bool] = lambda key: False) -> None:
        """`initial` is what clients know already; keys that `hidden` names, and `messages`, are never said."""
        self._hidden = hidden
        self._sizes: dict[str, int] = {}
        self._left_out: set[str] = set()
        self._complained: set[str] = set()
        self._value = _members(initial)
        self._said: Any = self._visible()
        self._measure(self._value)

    @property
    def value(self) -> dict[str, Any]:
        """Everything, hidden keys too. Do not change it in place."""
        return self._value

    def keep(self, changes: Mapping[str, Any]) -> None:
        """Set these keys and say nothing yet: whatever is said next does."""
        new = _members(changes)
        self._value = {**self._value, **new}
        self._measure(new)

    def drop(self, key: str) -> None:
        """Remove a key, if it is there, and say nothing yet."""
        self._value = {name: item for name, item in self._value.items() if name != key}
        self._measure([key])

    def merge(self, patch: Mapping[str, Any]) -> list[Event]:
        """Set these keys: one complete snapshot."""
        self.keep(patch)
        return self.closing()

    def delta(self, changes: Mapping[str, Any]) -> list[Event]:
        """Set these keys: a patch of those that differ."""
        old, new = self._value, _members(changes)
        return self.apply(
            [_set(key, item, old) for key, item in new.items() if key not in old or not same(old[key], item)]
        )

    def apply(self, patch: JsonPatch) -> list[Event]:
        """Patch the state: the visible part of the patch, or a snapshot where that would not lead clients to the same state.

        Raises: PatchConflict when it does not apply; then nothing has changed.
        """
        patch = plain(patch)
        self._value = _object(apply_patch(self._value, patch))
        self._measure(_touched(patch, [*self._sizes, *self._value]))
        seen = visible_patch(patch, self._is_unsaid)
        before = self._said
        self._follow(seen)
        if not same(self._said, self._visible()) or _size(seen) > _MOST:
            self._said = before
            return self.closing()
        return [*([] if same(self._said, before) else [StateDelta(delta=seen)]), *self._complaints()]

    def snapshot(self) -> StateSnapshot:
        """All that clients may see."""
        self._said = self._visible()
        return StateSnapshot(snapshot=self._said)

    def closing(self) -> list[Event]:
        """A complete snapshot if clients have something else."""
        return [*([] if same(self._said, self._visible()) else [self.snapshot()]), *self._complaints()]

    def _complaints(self) -> list[Event]:
        """That a key is left out from now on."""
        new = self._left_out - self._complained
        self._complained = self._left_out
        return [dropped("STATE_DELTA", "too_large") for _ in new]

    def _measure(self, keys: Iterable[str]) -> None:
        """Look again which keys clients can have, after a change of these."""
        for key in keys:
            self._sizes.pop(key, None)
            if key in self._value and not is_hidden(key, self._hidden):
                self._sizes[key] = _size({key: self._value[key]})
        self._left_out = _beyond(self._sizes)

    def _is_unsaid(self, key: str) -> bool:
        return key in self._left_out or self._hidden(key)

    def _visible(self) -> Any:
        return SharedState(self._value).visible(self._is_unsaid)

    def _follow(self, seen: JsonPatch) -> None:
        """What clients have after this patch: one that does not apply they ignore."""
        with suppress(PatchConflict):
            self._said = apply_patch(self._said, seen)


def _touched(patch: JsonPatch, every: Iterable[str]) -> Iterable[str]:
    """The top-level keys that a patch may have changed."""
    ends = [operation[end] for operation in patch for end in ("path", "from") if end in operation]
    return dict.fromkeys(key for end in ends for key in ([keys_of(end)[0]] if end else every))


def _beyond(sizes: Mapping[str, int]) -> set[str]:
    """The largest keys, as many as have to be left out for the others to fit."""
    total, beyond = sum(sizes.values()), set[str]()
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True) if total > _MOST else ():
        if total > _MOST:
            total -= sizes[key]
            beyond.add(key)
    return beyond


def _size(value: Any) -> int:
    try:
        return size_of(value)
    except (ValueError, OverflowError):
        return len(json_text(value).encode())  # As it is mended before it goes out.


def _set(key: str, item: Any, old: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": "replace" if key in old else "add", "path": pointer_to(key), "value": item}


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _object(value: Any) -> dict[str, Any]:
    """Raises: PatchConflict when the state would no longer be an object."""
    if not _is_object(value):
        raise PatchConflict
    return value


def _members(value: Any) -> dict[str, Any]:
    members = plain(value)
    return members if _is_object(members) else {}
