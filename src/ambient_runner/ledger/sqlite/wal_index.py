"""The header of the index of the write-ahead log (-shm), compared with the log: SQLite does not notice that a log lost its frames.

The layout is described in https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.ledger.sqlite.open_descriptor import OpenDescriptor

__all__ = ["WalIndex"]

_HEADER_SIZE = 48
"""Bytes of the index's header. A copy follows: the two differ while a process writes them."""
_HEADER_FIELDS = struct.Struct("=14x H I 12x 8s")
"""The size of a page, the number of frames and the salts, in the byte order of the machine."""
_LOG_HEADER_SIZE = 32
_FRAME_HEADER_SIZE = 24
_SALTS = slice(16, 24)
"""The salts in the header of the log: another pair each time the log is begun anew."""


class WalIndex:
    """The index of a log that SQLite has open in this process."""

    def __init__(self, log: OpenDescriptor, index: OpenDescriptor) -> None:
        self._log = log
        self._index = index

    def lacks_frames(self) -> bool:
        """Return True if the log certainly lacks frames that were committed to it."""
        header = self._read_header()
        if header is None or self._has_frames(header):
            return False
        # A checkpoint may have emptied the log since: it changes the index before the log.
        return header[:_HEADER_SIZE] == header[_HEADER_SIZE:] and header == self._read_header()

    def _has_frames(self, header: bytes) -> bool:
        """Return False if the log is shorter than the index says, or another program has begun it anew."""
        page_size, count, salts = _HEADER_FIELDS.unpack_from(header)
        if count == 0:
            return True
        size = _LOG_HEADER_SIZE + count * (_FRAME_HEADER_SIZE + (65536 if page_size == 1 else page_size))
        begin, last = self._log.read(_LOG_HEADER_SIZE, 0), self._log.read(1, size - 1)
        if begin is None or last is None:
            return True
        return last != b"" and begin[_SALTS] == salts

    def _read_header(self) -> bytes | None:
        header = self._index.read(2 * _HEADER_SIZE, 0)
        return header if header and len(header) == 2 * _HEADER_SIZE else None
