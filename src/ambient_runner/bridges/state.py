"""The shared state of one run, as an adapter keeps it: all of it here, the visible part said to clients, always complete.

Frameworks report changes as partial snapshots, key by key or as patches. A client that gets a partial snapshot loses the rest of its
state, so whatever comes in, what goes out is a whole snapshot, or a patch that leads from what was said before to what is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from ambient_runner.bridges.plain import plain
from ambient_runner.errors import PatchConflict
from ambient_runner.projections.state import SharedState, apply_patch, same, visible_patch
from ambient_runner.protocol.events import StateDelta, StateSnapshot
from ambient_runner.protocol.pointers import pointer_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.protocol.events import Event, JsonPatch

__all__ = ["StateStore"]


class StateStore:
    """The methods that change the state return the events that tell clients: none when no client can see a difference.

    What comes in is copied, and what JSON cannot hold becomes the nearest thing it can.
    Raises: ValueError for a value that contains itself.
    """

    def __init__(self, initial: Any = None, hidden: Callable[[str], bool] = lambda key: False) -> None:
        """`initial` is what clients know already; keys that `hidden` names, and `messages`, are never said."""
        self._hidden = hidden
        self._value = _members(initial)
        self._said: Any = self._visible()

    @property
    def value(self) -> dict[str, Any]:
        """Everything, hidden keys too. Do not change it in place."""
        return self._value

    def keep(self, changes: Mapping[str, Any]) -> None:
        """Set these keys and say nothing yet: whatever is said next does."""
        self._value = {**self._value, **_members(changes)}

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
        seen = visible_patch(patch, self._hidden)
        before = self._said
        self._follow(seen)
        if not same(self._said, self._visible()):
            return [self.snapshot()]
        return [] if same(self._said, before) else [StateDelta(delta=seen)]

    def snapshot(self) -> StateSnapshot:
        """All that clients may see."""
        self._said = self._visible()
        return StateSnapshot(snapshot=self._said)

    def closing(self) -> list[Event]:
        """A complete snapshot if clients have something else."""
        return [] if same(self._said, self._visible()) else [self.snapshot()]

    def _visible(self) -> Any:
        return SharedState(self._value).visible(self._hidden)

    def _follow(self, seen: JsonPatch) -> None:
        """What clients have after this patch: one that does not apply they ignore."""
        with suppress(PatchConflict):
            self._said = apply_patch(self._said, seen)


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
