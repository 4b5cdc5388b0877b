"""The database file that a ledger has opened: others can migrate, delete or replace it.

Its path is checked in every transaction, its schema version once another process has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import StoreUnusable
from ambient_runner.ledger.sqlite.schema import known_version, read_version

if TYPE_CHECKING:
    import os
    import sqlite3
    from pathlib import Path

__all__ = ["OpenedFile"]

_MIGRATED = "The store was migrated by another version of the server. Its operator has to restart this server with that version."
_GONE = (
    "The store's file, or the write-ahead log beside it, was deleted or replaced while the server ran. Its operator has to put the same "
    "file back, or restart the server."
)

_SHRUNK = (
    "The store's file was overwritten or truncated while the server ran. Its operator has to stop the server, restore a backup, and run "
    "`ambient db new-epoch`."
)


class OpenedFile:
    """The file as it was opened: SQLite goes on with a file that was deleted, and would store into nothing."""

    def __init__(self, path: Path) -> None:
        file = path.resolve()  # SQLite follows a link, and puts the log beside the file itself.
        self._paths = (path.absolute(), file.with_name(f"{file.name}-wal"))
        self._identities: tuple[tuple[int, int] | None, ...] | None = None
        self._size = 0
        """The largest size of the database so far. SQLite never makes it smaller: nothing here vacuums."""

    def remember(self) -> None:
        """Remember which files these are. Call it once the schema was written: then the write-ahead log exists too."""
        self._identities = self._read_identities()

    def check(self, connection: sqlite3.Connection) -> None:
        """Check, inside a transaction, that the file is still in its place and has the schema this program knows. Raises: StoreUnusable."""
        self.check_path()
        self.check_version(connection)

    def check_version(self, connection: sqlite3.Connection) -> None:
        """Check that the file has the schema this program knows. Raises: StoreUnusable."""
        if read_version(connection) != known_version():
            raise StoreUnusable(_MIGRATED)

    def check_path(self) -> None:
        """Check that the path still leads to the file that was opened: SQLite would create a missing one. Raises: StoreUnusable."""
        if self._identities is None:
            return
        seen = self._size  # Before the file: other threads check it too, while it grows.
        database, log = map(_find_file, self._paths)
        if database is None or (_identity_of(database), _identity_of(log)) != self._identities:
            raise StoreUnusable(_GONE)
        size = database.st_size
        if size < seen:
            raise StoreUnusable(_SHRUNK)
        self._size = max(size, self._size)

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
    return (file.st_dev, file.st_ino) if file else None
