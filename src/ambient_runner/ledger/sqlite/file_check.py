"""The database file that a ledger has opened: others can migrate, delete, replace or overwrite it.

Its path, size, header and write-ahead log are checked in every transaction, its schema version once another process has written.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.errors import StoreUnusable, copy_error
from ambient_runner.ledger.process_identity import file_identity
from ambient_runner.ledger.sqlite.connection import primary_code
from ambient_runner.ledger.sqlite.file_header import FileHeader
from ambient_runner.ledger.sqlite.open_descriptor import OpenDescriptor
from ambient_runner.ledger.sqlite.schema import known_version, read_version
from ambient_runner.ledger.sqlite.wal_index import WalIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["OpenedFile"]

_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_MIGRATED = "The store was migrated by another version of the server. Its operator has to restart this server with that version."
_GONE = (
    "The store's file, or its -wal or -shm file, was deleted or replaced while the server ran. Its operator has to put the same "
    "file back, or restart the server."
)
_RESTORE = "Its operator has to stop all servers, restore a backup, and run `ambient db new-epoch`."
_OVERWRITTEN = f"The store's file was overwritten or truncated while the server ran. {_RESTORE}"
_LOG_CUT = f"The store's write-ahead log (-wal) was overwritten or truncated while the server ran. {_RESTORE}"
_DAMAGED = f"The store's file is damaged: it was overwritten while the server ran, or its disk failed. {_RESTORE}"


class OpenedFile:
    """The file as it was opened: SQLite goes on with a file that was deleted, and would store into nothing."""

    def __init__(self, path: Path) -> None:
        file = path.resolve()  # SQLite follows a link, and puts the write-ahead log beside the file itself.
        self._paths = (path.absolute(), file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm"))
        self._identities: tuple[tuple[int, int] | None, ...] | None = None
        self._size = 0
        """The largest size of the database so far. SQLite never makes it smaller: nothing here vacuums."""
        self._damage_error: StoreUnusable | None = None
        self._header: FileHeader | None = None
        self._index: WalIndex | None = None

    @property
    def damage_error(self) -> StoreUnusable | None:
        """The error of all transactions from now on; None if no damage was found. Unlike a missing file, damage stays."""
        return self._damage_error

    def remember(self) -> None:
        """Record the identity of the three files.

        Call it after a transaction, while its connection is open: then the write-ahead log and its index exist.

        The locks are in the index (-shm): a process that finds none creates another, and the two overwrite each other's commits.
        """
        self._identities = database, log, index = self._read_identities()
        if database and log and index:
            self._header = FileHeader(OpenDescriptor(database))
            self._index = WalIndex(OpenDescriptor(log), OpenDescriptor(index))

    def check(self, connection: sqlite3.Connection) -> None:
        """Check, inside a transaction, that the file is still in its place and has the schema this program knows. Raises: StoreUnusable."""
        self.check_files()
        self.check_version(connection)

    def check_version(self, connection: sqlite3.Connection) -> None:
        """Check that the file has the schema this program knows. Raises: StoreUnusable."""
        if read_version(connection) != known_version():
            raise StoreUnusable(_MIGRATED)

    def check_files(self) -> None:
        """Check that the paths still lead to the files that were opened, and that no one has overwritten them. Raises: StoreUnusable.

        SQLite would create a missing file, and write into another one.
        """
        if self._damage_error is not None:
            raise copy_error(self._damage_error)
        if self._identities is None:
            return
        seen = self._size  # Before the file: other threads check it too, while it grows.
        database, log, index = map(_find_file, self._paths)
        if database is None or tuple(map(_identity_of, (database, log, index))) != self._identities:
            raise StoreUnusable(_GONE)
        size = database.st_size
        if size < seen or (self._header is not None and self._header.was_overwritten()):
            raise self._record_damage(_OVERWRITTEN)
        self._size = max(size, self._size)
        if self._index is not None and self._index.lacks_frames():
            raise self._record_damage(_LOG_CUT)

    @contextmanager
    def detect_damage(self) -> Generator[None, None, None]:
        """Let no transaction follow one in which SQLite found damage: the next may see other pages, and write. Raises: StoreUnusable."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if primary_code(error) in _DAMAGE_CODES:
                raise self._record_damage(_DAMAGED) from error
            raise

    def _record_damage(self, message: str) -> Exception:
        self._damage_error = self._damage_error or StoreUnusable(message)
        return copy_error(self._damage_error)

    def _read_identities(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_identity_of(_find_file(path)) for path in self._paths)


def _find_file(path: Path) -> os.stat_result | None:
    """Return what is known of a file; None if it cannot be found."""
    try:
        return path.stat()
    except OSError:
        return None


def _identity_of(file: os.stat_result | None) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it was not found."""
    return file_identity(file) if file else None
