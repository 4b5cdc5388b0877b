"""Connections to the database file: pragmas and waiting for locks. Also maps the errors of sqlite3 to ours."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Generator

APPLICATION_ID = 0x414D4252  # "AMBR"
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
BUSY_TIMEOUT = 5.0
"""Seconds to wait for a lock that another connection holds."""
_BUSY_PAUSE = 0.0005
"""Seconds between two attempts to get the lock, on average."""
_UNSET_EVENT = threading.Event()
"""To wait for such a pause: under libfaketime, `time.sleep` fails if the machine is busy."""
_CACHED_STATEMENTS = 256
"""Prepared statements that a connection caches."""

_SETTINGS = (
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    # A commit must not pay for a checkpoint: `wal.py` runs them on a thread of its own.
    "wal_autocheckpoint = 0",
)
_ERROR_MESSAGES = {
    sqlite3.SQLITE_BUSY: "The store is locked by another process.",
    sqlite3.SQLITE_LOCKED: "The store is locked by another process.",
    sqlite3.SQLITE_FULL: "The disk of the store is full.",
    sqlite3.SQLITE_READONLY: "The store is read-only.",
    sqlite3.SQLITE_IOERR: "The disk of the store failed.",
    sqlite3.SQLITE_CORRUPT: "The store's file is damaged.",
    sqlite3.SQLITE_NOTADB: "The store's file is not a SQLite database.",
    sqlite3.SQLITE_CANTOPEN: "The store's file cannot be opened.",
    sqlite3.SQLITE_TOOBIG: "An entry is too large for the store.",
}


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's result code without its extension; 0 if the error is the driver's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def ledger_error(error: sqlite3.Error) -> LedgerError:
    mapped = LedgerError(_ERROR_MESSAGES.get(primary_code(error)))
    mapped.__cause__ = error
    return mapped


def is_locked(error: LedgerError | sqlite3.Error) -> bool:
    """Return True if another connection holds the lock that was needed."""
    cause = error.__cause__ if isinstance(error, LedgerError) else error
    return isinstance(cause, sqlite3.Error) and primary_code(cause) in _LOCKED


@contextmanager
def map_sqlite_errors() -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        raise ledger_error(error) from error


def database_path(url: str) -> Path | None:
    """Return the file a `sqlite:///` URL names, or None for another scheme."""
    scheme, _, rest = url.partition("://")
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None


def connect(path: Path, *, reader: bool = False) -> sqlite3.Connection:
    """Open a connection with our pragmas.

    A reader may be used by one thread after another, and SQLite waits for its locks. It may also run WAL checkpoints.
    """
    connection = sqlite3.connect(
        path.absolute(),  # SQLite would read a name such as `file:threads.db` as a URI
        timeout=BUSY_TIMEOUT if reader else 0,
        isolation_level=None,
        check_same_thread=not reader,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        for setting in (*_SETTINGS, "query_only = ON") if reader else _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def begin_immediate(connection: sqlite3.Connection, timeout: float | None = None) -> None:
    """Begin a write transaction. SQLite's own busy handler backs off and starves; short pauses are fair between processes."""
    execute_when_free(connection, "BEGIN IMMEDIATE", timeout)


def execute_when_free(connection: sqlite3.Connection, statement: str, timeout: float | None = None) -> None:
    """Execute a statement once no other connection holds the lock it needs.

    Raises: sqlite3.Error after `timeout` seconds, by default `BUSY_TIMEOUT`.
    """
    deadline = time.monotonic() + (BUSY_TIMEOUT if timeout is None else timeout)
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > deadline:
                raise
            _UNSET_EVENT.wait(_BUSY_PAUSE * (0.5 + random.random()))  # noqa: S311  spreads processes, hides nothing
        else:
            return
