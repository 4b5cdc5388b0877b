"""Lines of JSON from a program that may write anything: split, bounded and repaired. `json_rpc.py` reads them as messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["LineBuffer", "is_line_too_deep", "replace_lone_surrogates"]

_MAX_DEPTH = 128
_HEAD_BYTES = 512
"""Of a line that is too long, what is kept to tell what it was."""


class LineBuffer:
    """Splits blocks of bytes into lines. A line that is too long is skipped and counted.

    `on_oversized` gets its beginning and its number of bytes, once it has ended.
    """

    def __init__(
        self, max_line_bytes: int, on_oversized: Callable[[bytes, int], None] = lambda head, size: None
    ) -> None:
        self.oversized = 0
        self._max_line_bytes = max_line_bytes
        self._on_oversized = on_oversized
        self._head = b""
        self._parts: list[bytes] = []
        self._size = 0

    def split(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this block, and keep the beginning of the next one."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if not lines:
            self._keep(rest)
            return lines
        if self._size:
            self._keep(lines[0])
            lines[0] = self.take_rest()
        self._keep(rest)
        if len(data) > self._max_line_bytes:
            lines = [line for line in lines if self._is_within_bounds(line)]
        return lines

    def take_rest(self) -> bytes:
        """Return the line that has begun; nothing if it is too long."""
        line, size = b"".join(self._parts), self._size
        self._parts, self._size = [], 0
        if size > self._max_line_bytes:
            self._on_oversized(self._head, size)
        return line

    def _keep(self, part: bytes) -> None:
        """Append to the line that has begun. Of one that is too long only its size is kept."""
        if not part:
            return
        was_within_bounds = self._size <= self._max_line_bytes
        self._size += len(part)
        if self._size <= self._max_line_bytes:
            self._parts.append(part)
        elif was_within_bounds:
            self._head = _first_bytes([*self._parts, part])
            self._parts = []
            self.oversized += 1

    def _is_within_bounds(self, line: bytes) -> bool:
        if len(line) <= self._max_line_bytes:
            return True
        self.oversized += 1
        self._on_oversized(line[:_HEAD_BYTES], len(line))
        return False


def _first_bytes(parts: Iterable[bytes]) -> bytes:
    """Return the beginning of a line. Its first part may end anywhere."""
    head = b""
    for part in parts:
        head += part[: _HEAD_BYTES - len(head)]
        if len(head) == _HEAD_BYTES:
            break
    return head


def is_line_too_deep(line: bytes) -> bool:
    """Return True if its brackets nest deeper than code that recurses should have to."""
    return len(line) > 2 * _MAX_DEPTH and is_too_deep(line, _MAX_DEPTH)


def replace_lone_surrogates(line: bytes) -> bytes | None:
    r"""Return the line with U+FFFD for each half of a surrogate pair; None if it has none.

    JavaScript writes `"\ud83d"` when it sends a text in parts and a part ends within a character.
    """
    if rb"\ud" not in line.lower() or is_line_too_deep(line):
        return None
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
        repaired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    except (ValueError, RecursionError):
        return None
    return None if repaired == line else repaired
