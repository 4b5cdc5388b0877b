"""Backup of a live database by SQLite's backup API, which includes what is still in the write-ahead log; new epochs for a restored one."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError, LedgerError
from ambient_runner.ledger.process_identity import describe_process
from ambient_runner.ledger.records import new_epoch
from ambient_runner.ledger.sqlite.connection import (
    APPLICATION_ID,
    begin_immediate,
    connect,
    map_sqlite_errors,
    primary_code,
)
from ambient_runner.ledger.sqlite.schema import prepare_database
from ambient_runner.ledger.sqlite.workers import list_live_processes
from ambient_runner.ledger.thread_changes import POSITIONS_PER_MS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["backup_database", "renew_epochs"]

# Positions move on beyond all that were given out after the backup, and the erasures before them are unknown.
_FORGET_CHANGES = "UPDATE change_counter SET newest = max(?1, newest) + 1, dropped = max(?1, newest) + 1"
_SIDE_FILES = ("-journal", "-wal", "-shm")
_TARGET_ERRORS = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its disk failed",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
}


def backup_database(source: Path, target: Path) -> None:
    """Copy one consistent state of `source` to the new file `target`, readable by its owner only.

    All pages are copied in one step, so that writers cannot make it start again. Writers in WAL mode are not blocked.
    Raises: ConfigError when `source` is no store of this program or the file cannot be created, LedgerError.
    """
    with map_sqlite_errors(), closing(_open_store(source)) as reader:
        _create_file(target)
        side_files = [target.with_name(f"{target.name}{suffix}") for suffix in _SIDE_FILES]
        leftovers = [target, *(file for file in side_files if not file.exists())]
        try:
            _copy_pages(reader, target)
        except BaseException as error:
            for file in leftovers:
                file.unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error) and primary_code(error) in _TARGET_ERRORS:
                reason = _TARGET_ERRORS[primary_code(error)]
                raise LedgerError(f"The backup {target} could not be written: {reason}. Nothing was kept.") from error
            raise


def renew_epochs(path: Path) -> int:
    """Give every thread of a restored database a new epoch, so that no cursor from before leads anywhere. Return their number.

    Cursors of lists become stale too. See docs/decisions/0017-a-restored-backup-needs-new-epochs.md.
    Raises: ConfigError when it is no store of this program, or a process uses it; LedgerError.
    """
    with map_sqlite_errors():
        _open_store(path).close()
    prepare_database(path)
    with map_sqlite_errors(), closing(connect(path)) as connection:
        connection.create_function("random_tag", 0, new_epoch)
        begin_immediate(connection)
        if processes := list_live_processes(connection):
            names = ", ".join(map(describe_process, processes))
            raise ConfigError(f"{path} is in use: {names}. Stop it first, and start it again afterwards.")
        count = connection.execute("UPDATE thread SET epoch = random_tag()").rowcount
        connection.execute(_FORGET_CHANGES, (time.time_ns() // 1_000_000 * POSITIONS_PER_MS,))
        connection.execute("COMMIT")
        return count


def _open_store(source: Path) -> sqlite3.Connection:
    """Open a reader. Raises: ConfigError for an empty file, a database of another program and a file that is no database."""
    refusal = ConfigError(f"{source} is not a store of this program. Name the store with --store.")
    try:
        reader = connect(source, reader=True)
    except sqlite3.DatabaseError as error:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise refusal from error
        raise
    if reader.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        reader.close()
        raise refusal
    return reader


def _create_file(target: Path) -> None:
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise ConfigError(f"{target} exists. Name a file that does not, or remove it first.") from error
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from error


def _copy_pages(reader: sqlite3.Connection, target: Path) -> None:
    # An absolute path: SQLite would read a name such as `file:copy.db` as a URI.
    with closing(sqlite3.connect(target.absolute())) as copy:
        reader.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm beside it
