"""The schema of the database file: creating the file, its migrations, and the version that this program knows."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from ambient_runner.config.private_dir import make_private_dir
from ambient_runner.errors import ConfigError
from ambient_runner.ledger.process_identity import describe_process, file_identity, list_open_files
from ambient_runner.ledger.sqlite.connection import (
    APPLICATION_ID,
    begin_immediate,
    connect,
    execute_when_free,
    ledger_error,
    primary_code,
)
from ambient_runner.ledger.sqlite.workers import list_live_processes
from ambient_runner.ledger.thread_search import fold_case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ambient_runner.ledger.process_identity import Process

__all__ = ["known_version", "prepare_database", "read_version"]

_STORE_SETTING = "(`--store`, AMBIENT_STORE or `Settings(store=...)`)"
_CHOOSE_STORE = f"Name another store {_STORE_SETTING}."
_START_ERRORS = {
    sqlite3.SQLITE_FULL: "its disk is full. Make space, and start again.",
    sqlite3.SQLITE_IOERR: "its disk failed, or it is not a regular file. Check its disk and its path.",
    sqlite3.SQLITE_CANTOPEN: "it, or a file beside it, cannot be opened. Check their permissions.",
    sqlite3.SQLITE_READONLY: "it is read-only. Check its permissions.",
}


def prepare_database(path: Path) -> None:
    """Create the file and its directory, readable by their owner only; migrate the schema. Raises: ConfigError, LedgerError."""
    try:
        make_private_dir(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ConfigError(f"The store's file {path} cannot be opened: {error.strerror}. {_CHOOSE_STORE}") from error
    try:
        with closing(connect(path)) as connection:
            _check_schema(connection, path)
            execute_when_free(connection, "PRAGMA journal_mode = WAL")
            _apply_migrations(connection, path)
    except sqlite3.Error as error:
        if primary_code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise ConfigError(
                f"{path} is not a database of this program, or it is damaged. {_CHOOSE_STORE} If it was a store, restore a backup."
            ) from error
        if (reason := _START_ERRORS.get(primary_code(error))) is not None:
            raise ConfigError(
                f"The store's file {path} cannot be used: {reason} Or name another store {_STORE_SETTING}."
            ) from error
        raise ledger_error(error) from error


@cache
def known_version() -> int:
    """Return the version of the schema that this program reads and writes."""
    return len(_read_migrations())


def read_version(connection: sqlite3.Connection) -> int:
    """Return the version of the file's schema. Inside a transaction it cannot change any more."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise ConfigError(f"{path} is a database of another program. {_CHOOSE_STORE}")
    if (version := read_version(connection)) > known_version():
        raise ConfigError(
            f"{path} was written by a newer version of this program (schema {version}, this one knows {known_version()}). "
            "Start that version, or restore a backup from before the upgrade."
        )


def _apply_migrations(connection: sqlite3.Connection, path: Path) -> None:
    connection.create_function("sha256_hex", 1, _sha256_hex, deterministic=True)
    connection.create_function("fold_case", 1, fold_case, deterministic=True)
    begin_immediate(connection)
    try:
        # Read again: another process may have migrated while this one waited.
        version = read_version(connection)
        steps = _read_migrations()[version:]
        if steps and version:
            _refuse_live_workers(connection, path, version)
        elif version:
            _refuse_second_index(connection, path)
        for step in steps:
            for statement in _split_statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if steps:
            connection.execute(f"PRAGMA user_version = {version + len(steps)}")
        connection.execute("COMMIT")
    except (sqlite3.Error, ConfigError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _refuse_live_workers(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Refuse to migrate under an older program: it would go on with the schema that it knows. Raises: ConfigError."""
    if processes := list_live_processes(connection):
        names = ", ".join(describe_process(process) for process in processes)
        raise ConfigError(
            f"{path} has schema {version} and this version needs schema {known_version()}, but an older version still uses the file: "
            f"{names}. Stop it, then start this one again; its migration takes a moment."
        )


def _refuse_second_index(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse to write while another process uses an index (-shm) that was deleted: the locks are in it, so the two would share none.

    Raises: ConfigError.
    """
    if processes := [process for process in list_live_processes(connection) if _has_another_index(process, path)]:
        names = ", ".join(map(describe_process, processes))
        raise ConfigError(
            f"The file {path}-shm was deleted or replaced while a process used the store: {names}. Both would overwrite what the other "
            "stores. Stop it, then start this one again."
        )


def _has_another_index(process: Process, path: Path) -> bool:
    """Return True if a process has certainly opened the database with another index than the one that its path leads to now."""
    file = path.resolve()
    try:
        database, index = (file_identity(each.stat()) for each in (file, file.with_name(f"{file.name}-shm")))
    except OSError:
        return False
    files = list_open_files(process)
    return database in files and index not in files


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
