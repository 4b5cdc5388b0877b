"""The header of the database file: it shows that an older copy or a backup was written over the file.

The layout is described in https://sqlite.org/fileformat.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.ledger.sqlite.open_descriptor import OpenDescriptor

__all__ = ["FileHeader"]

_FORMAT_SIZE = 24
"""Bytes that never change in a file in use. Two of them differ in a backup: it has no write-ahead log."""
_HEADER_SIZE = _FORMAT_SIZE + 4
_HALF_RANGE = 1 << 31
"""Half of the values of the change counter, which begins again at 0. Every start of a server increments it."""


class FileHeader:
    """The header of a file that SQLite has open in this process, as it was last seen."""

    def __init__(self, file: OpenDescriptor) -> None:
        self._file = file
        self._last = file.read(_HEADER_SIZE, 0)

    def was_overwritten(self) -> bool:
        """Return True if the header is not a later state of the one last seen."""
        return self._is_older() and self._is_older()  # Twice: a checkpoint may be writing it.

    def _is_older(self) -> bool:
        last = self._last  # Before the file: other threads read it too, while it changes.
        header = self._file.read(_HEADER_SIZE, 0)
        if last is None or header is None or header == last:
            return False
        if (
            header[:_FORMAT_SIZE] != last[:_FORMAT_SIZE]
            or (_counter(header) - _counter(last)) % (1 << 32) >= _HALF_RANGE
        ):
            return True
        self._last = header
        return False


def _counter(header: bytes) -> int:
    return int.from_bytes(header[_FORMAT_SIZE:], "big")
