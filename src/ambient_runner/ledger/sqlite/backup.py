"""Backup of a live database by SQLite's backup API, which includes what is still in the write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite.connection import connect, map_sqlite_errors

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["backup_database"]


def backup_database(source: Path, target: Path) -> None:
    """Copy one consistent state of `source` to the new file `target`, readable by its owner only.

    All pages are copied in one step, so that writers cannot make it start again. Writers in WAL mode are not blocked.
    Raises: ConfigError when the file cannot be created, LedgerError.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise ConfigError(f"{target} exists. Name a file that does not, or remove it first.") from error
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from error
    try:
        with (
            map_sqlite_errors(),
            closing(connect(source, reader=True)) as reader,
            closing(sqlite3.connect(target)) as copy,
        ):
            reader.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm beside it
    except BaseException:
        target.unlink(missing_ok=True)
        raise
