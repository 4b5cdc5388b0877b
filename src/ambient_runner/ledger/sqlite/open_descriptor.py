"""Reads of the store's files without SQLite, through descriptors that SQLite has open.

Opening and closing the database or its index would release all locks that this process holds on it: POSIX locks belong to the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ambient_runner.ledger.process_identity import file_identity

__all__ = ["OpenDescriptor"]

_DESCRIPTORS = Path("/dev/fd")


class OpenDescriptor:
    """A file that SQLite has open in this process. It is looked up again once the connection that opened it is closed."""

    def __init__(self, identity: tuple[int, int]) -> None:
        self._identity = identity
        self._number = _find_descriptor(identity)

    def read(self, size: int, offset: int) -> bytes | None:
        """Return bytes of the file, fewer at its end; None if it cannot be read here."""
        number = self._number
        if number is None:
            return None
        with suppress(OSError):
            content = os.pread(number, size, offset)
            # Checked after the read: the number may belong to another file by now.
            if file_identity(os.fstat(number)) == self._identity:
                return content
        self._number = _find_descriptor(self._identity)
        return None


def _find_descriptor(identity: tuple[int, int]) -> int | None:
    with suppress(OSError):
        for number in sorted(int(entry.name) for entry in _DESCRIPTORS.iterdir()):
            with suppress(OSError):  # It was closed meanwhile: so is the one of the listing itself.
                if file_identity(os.fstat(number)) == identity:
                    return number
    return None
