"""JSON Patch (RFC 6902), the only implementation here. An agent's patches are applied as in the official client.

Agents stream patches token by token, so only the containers on the path to a change are copied, each once per patch; a general library
copies the whole document each time. `state.py` decides which patches of a client are accepted.
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

    from ambient_runner.projections.state_patch import KeyChange

__all__ = [
    "MAX_STATE_BYTES",
    "PatchTooLarge",
    "PatchedDocument",
    "apply_bounded_patch",
    "apply_patch",
    "encoded_size",
    "is_array",
    "is_object",
    "json_equal",
]

MAX_STATE_BYTES = MAX_EVENT_BYTES
"""Encoded size of a state: it fits into one event."""

_MAX_SHIFTED_ITEMS = 1 << 26
"""Items of arrays that a patch may shift by inserting and removing before them: about 20 ms. 600 at the start of 100,000 items."""

_MAX_KEPT_COPIES = 1_000
"""Containers that are kept to be changed in place by the next patch. Some of them may be gone from the document."""
_MAX_RECENT = 4
"""Paths of a patch that are kept: comparing a long path with all of them must cost less than following it."""
_UNDOABLE = frozenset({"add", "replace", "test"})
_ABSENT = object()

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_encode = msgspec.json.Encoder().encode


class PatchTooLarge(PatchConflict):
    """The patch copies too much, or shifts too many items of arrays. Send several smaller patches, or a snapshot."""


def apply_patch(document: Any, operations: Sequence[dict[str, Any]], *, limit: int = MAX_STATE_BYTES) -> Any:
    """Return the document after the patch, all or nothing. Nothing is changed in place: unchanged parts are shared.

    The cost is linear in the patch and the containers that it changes. `limit` bounds the bytes that `copy` operations may add: forty of
    them could otherwise exhaust the memory.
    Raises: PatchConflict if it does not apply; PatchTooLarge if it copies or shifts too much.
    """
    patched = PatchedDocument(document)
    patched.apply(operations, limit=limit)
    return patched.root


def apply_bounded_patch(document: PatchedDocument, operations: Sequence[dict[str, Any]]) -> None:
    """Patch a document that becomes part of a message, all or nothing. It is measured only if the patch can amplify or nests deep.

    Raises: PatchConflict if it does not apply, or if the result is too large or too deep for an event.
    """
    document.apply(operations)
    if any(map(_can_amplify, operations)) and (
        nesting_depth(document.root) > MAX_MESSAGE_DEPTH or encoded_size(document.root) > MAX_STATE_BYTES
    ):
        document.undo()
        raise PatchConflict


def _can_amplify(operation: dict[str, Any]) -> bool:
    return (
        "from" in operation or operation["path"].count("/") + nesting_depth(operation.get("value")) > MAX_MESSAGE_DEPTH
    )


class PatchedDocument:
    """A document and the patches that are applied to it. Each container is copied once, before its first change.

    Later changes go to that copy, also those of later patches, until `freeze` says that someone else has the document.
    """

    __slots__ = ("_before", "_bytes_left", "_changes", "_copies", "_recent", "_shifts_left", "root")

    def __init__(self, document: Any) -> None:
        self.root = document
        """The document. Call `freeze` before anyone else keeps it."""
        self._bytes_left = self._shifts_left = 0
        self._copies: dict[int, Any] = {}
        """Containers that nobody else has, by their ids, which are not used again while they are here."""
        self._before = document
        self._changes: list[tuple[Any, Any, Any]] | None = None
        """The changes of the last patch in containers that it found in `_copies`: container, key, old value. None if it found none."""
        self._recent: list[tuple[list[str], Any]] = []
        """Paths that this patch wrote to lately, and the containers there: most patches write to a few of them again and again."""

    def freeze(self) -> Any:
        """Return the document as a value that no later patch changes."""
        self._copies.clear()
        self._before, self._changes = self.root, None
        return self.root

    def apply(self, operations: Sequence[dict[str, Any]], *, limit: int = MAX_STATE_BYTES) -> None:
        """Apply a patch, all or nothing. `undo` takes it back. Raises: as `apply_patch`."""
        self._before, self._changes = self.root, None
        self._bytes_left, self._shifts_left = limit, _MAX_SHIFTED_ITEMS
        self._recent = []
        try:
            if self._replace_key(operations):
                return
            if self._copies and (len(self._copies) > _MAX_KEPT_COPIES or not _can_undo(operations)):
                self._copies.clear()
            self._changes = [] if self._copies else None
            for operation in operations:
                self._apply(operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            self.undo()
            raise PatchConflict from error
        except PatchConflict:
            self.undo()
            raise

    def _replace_key(self, operations: Sequence[dict[str, Any]]) -> bool:
        """Apply a patch that only replaces one key of the root, in a third of the time; return False for any other.

        Most patches of an agent that streams its state are of this kind.
        """
        root = self.root
        if len(operations) != 1 or id(root) not in self._copies or not is_object(root):
            return False
        (operation,) = operations
        path = operation["path"]
        key = path[1:]
        if path[:1] != "/" or "/" in key or "~" in key or key not in root or key == "__proto__":
            return False
        if operation["op"] != "replace" or "value" not in operation:
            return False
        self._changes = [(root, key, root[key])]
        root[key] = operation["value"]
        return True

    def set_keys(self, changes: Sequence[KeyChange]) -> int:
        """Apply patches that each set one key of the root, which must be an object. Return how many did not apply. There is no `undo`."""
        root = self.root = self._copy_once(self.root)
        self._before, self._changes = root, None
        failed_count = 0
        for is_add, key, value in changes:
            if is_add or key in root:
                root[key] = value
            else:
                failed_count += 1
        return failed_count

    def undo(self) -> None:
        """Take the last patch back. The members of objects keep their order."""
        if self._changes is None:
            self._copies.clear()
        for container, key, old in reversed(self._changes or ()):
            if old is _ABSENT:
                del container[key]
            else:
                container[key] = old
        self.root, self._changes = self._before, None

    def _apply(self, operation: dict[str, Any]) -> None:
        path = _parse_path(operation["path"])
        match operation["op"]:
            case "add":
                self._add(path, operation["value"])
            case "replace":
                self._replace(path, operation["value"])
            case "remove":
                self._remove(path)
            case "copy":
                self._add(path, self._shared_value(_parse_path(operation["from"])))
            case "move":
                self._move(_parse_path(operation["from"]), path)
            case "test" if json_equal(_get_at(self.root, path), operation["value"]):
                pass
            case _:
                raise PatchConflict

    def _add(self, path: list[str], value: Any) -> None:
        """Put the value at the path. An array gets it inserted."""
        if not path:
            self._replace_root(value)
            return
        container = self._writable(path[:-1])
        if is_array(container):
            index = _resolve_key(container, path[-1], allow_end=True)
            self._count_shift(container, len(container) - index)
            self._record_change(container, index, _ABSENT)
            container.insert(index, value)
        else:
            key = _resolve_key(container, path[-1])
            self._record_change(container, key, container.get(key, _ABSENT))
            container[key] = value

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self._replace_root(value)
            return
        container = self._writable(path[:-1])
        key = _resolve_key(container, path[-1])
        if is_object(container) and key not in container:
            raise PatchConflict
        self._record_change(container, key, container[key])
        container[key] = value

    def _remove(self, path: list[str]) -> Any:
        """Remove the value at the path and return it."""
        if not path:
            removed = self.root
            self._replace_root(None)
            return removed
        container = self._writable(path[:-1])
        key = _resolve_key(container, path[-1])
        if is_array(container):
            self._count_shift(container, len(container) - key)
        removed = container.pop(key)
        self._forget_paths_below(container, removed)
        return removed

    def _move(self, source: list[str], target: list[str]) -> None:
        if target[: len(source)] == source and target != source:
            raise PatchConflict
        self._add(target, self._remove(source))

    def _replace_root(self, value: Any) -> None:
        self.root, self._recent = value, []

    def _writable(self, path: list[str]) -> Any:
        """Return the container at the path, after copies of it and of all containers that lead to it."""
        for recent, written in self._recent:
            if path == recent and id(written) in self._copies:
                return written
        container: Any = self._copy_once(self.root)
        self.root = container
        copies = self._copies
        # Without calls for most segments: a path may have dozens of them, and a patch thousands of paths.
        for segment in path:
            key = segment if container.__class__ is dict else _resolve_key(container, segment)
            inner: Any = container[key]
            if id(inner) not in copies:
                container[key] = inner = self._copy_once(inner)
            container = inner
        self._recent = [(path, container), *self._recent[: _MAX_RECENT - 1]]
        return container

    def _copy_once(self, container: Any) -> Any:
        """Return the copy of a container; the container itself if it is one."""
        if id(container) in self._copies:
            return container
        copied = container.copy()
        self._copies[id(copied)] = copied
        return copied

    def _shared_value(self, path: list[str]) -> Any:
        """Return the value at the path, which will be at a second path too: the next change at either copies it again."""
        value = _get_at(self.root, path)
        self._bytes_left -= encoded_size(value)
        if self._bytes_left < 0:
            raise PatchTooLarge
        pending = [value]
        while pending:  # What leads to a container of this patch is of this patch as well.
            found = self._copies.pop(id(pending.pop()), None)
            pending += found.values() if is_object(found) else found or ()
        return value

    def _record_change(self, container: Any, key: Any, old: Any) -> None:
        self._forget_paths_below(container, old)
        if self._changes is not None:
            self._changes.append((container, key, old))

    def _count_shift(self, container: Any, items: int) -> None:
        self._shifts_left -= items
        if self._shifts_left < 0:
            raise PatchTooLarge
        if items:  # What follows in the array has other paths now.
            self._forget_paths_below(container, container)

    def _forget_paths_below(self, container: Any, old: Any) -> None:
        """Forget the recent paths but that of this container, of which `old` is no member any more: some may have led through it."""
        if isinstance(old, (dict, list)) and len(self._recent) > 1:
            self._recent = [found for found in self._recent if found[1] is container]


def _can_undo(operations: Sequence[dict[str, Any]]) -> bool:
    """Return True if a patch can be taken back from the containers that it changes: none of its operations removes a member."""
    return all(operation["op"] in _UNDOABLE for operation in operations)


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
