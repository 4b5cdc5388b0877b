"""Opening the database file: permissions, pragmas, schema migrations. Also maps the errors of sqlite3 to ours."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import time
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.config.private_dir import make_private_dir
from ambient_runner.errors import ConfigError, LedgerError
from ambient_runner.ledger.thread_search import fold_case

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

APPLICATION_ID = 0x414D4252  # "AMBR"
BUSY_TIMEOUT = 5.0
"""Seconds to wait for a lock that another connection holds."""
_BUSY_PAUSE = 0.0005
"""Seconds between two attempts to get the lock, on average."""
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


def prepare_database(path: Path) -> None:
    """Create the file and its directory, readable by their owner only; migrate the schema. Raises: ConfigError, LedgerError."""
    try:
        make_private_dir(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ConfigError(f"The store's file {path} cannot be opened: {error.strerror}.") from error
    try:
        with closing(connect(path)) as connection:
            _check_schema(connection, path)
            _execute_when_free(connection, "PRAGMA journal_mode = WAL")
            _apply_migrations(connection)
    except sqlite3.Error as error:
        if primary_code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise ConfigError(f"{path} is not a database of this program, or it is damaged.") from error
        raise ledger_error(error) from error


def connect(path: Path, *, reader: bool = False) -> sqlite3.Connection:
    """Open a connection with our pragmas. A reader may be used by one thread after another, and SQLite waits for its locks."""
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


def begin_immediate(connection: sqlite3.Connection) -> None:
    """Begin a write transaction. SQLite's own busy handler backs off and starves; short pauses are fair between processes."""
    _execute_when_free(connection, "BEGIN IMMEDIATE")


def _execute_when_free(connection: sqlite3.Connection, statement: str) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE * (0.5 + random.random()))  # noqa: S311  spreads processes, hides nothing
        else:
            return


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise ConfigError(f"{path} is a database of another program.")
    if connection.execute("PRAGMA user_version").fetchone()[0] > len(_read_migrations()):
        raise ConfigError(f"{path} was written by a newer version of this program.")


def _apply_migrations(connection: sqlite3.Connection) -> None:
    connection.create_function("sha256_hex", 1, _sha256_hex, deterministic=True)
    connection.create_function("fold_case", 1, fold_case, deterministic=True)
    begin_immediate(connection)
    try:
        # Read again: another process may have migrated while this one waited.
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        steps = _read_migrations()
        for step in steps[version:]:
            for statement in _split_statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if version < len(steps):
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_migrations() -> list[str]:
    """Return the numbered `.sql` files, in order. A released one is never edited: a change is one more file."""
    directory = resources.files("ambient_runner.ledger.sqlite") / "migrations"
    files = sorted((file for file in directory.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files]


def _split_statements(script: str) -> Iterator[str]:
    """Split a script into statements: `executescript` would commit, and a migration is one transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
