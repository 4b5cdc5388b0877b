"""A few reading connections, each used by one worker thread at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.sqlite.connection import connect, map_sqlite_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from ambient_runner.ledger.sqlite.file_check import OpenedFile

T = TypeVar("T")

POOL_SIZE = 4
"""Connections that may be in use at the same time."""


class ReadPool:
    """Read-only connections, opened on demand and reused."""

    def __init__(self, path: Path, file: OpenedFile) -> None:
        self._path = path
        self._file = file
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._limiter: anyio.CapacityLimiter | None = None

    async def run_query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one read transaction, in a worker thread. Raises: LedgerError."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(POOL_SIZE)
        return await anyio.to_thread.run_sync(self._run_in_transaction, work, limiter=self._limiter)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _run_in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with map_sqlite_errors(), self._file.detect_damage():
            connection = self._take_connection()
            try:
                connection.execute("BEGIN")
                try:
                    self._file.check(connection)
                    return work(connection)
                finally:
                    connection.execute("ROLLBACK")
            finally:
                self._return_connection(connection)

    def _take_connection(self) -> sqlite3.Connection:
        with self._lock:
            if self._is_closed:
                raise LedgerError("The store is closed.")
            if self._idle:
                return self._idle.pop()
        self._file.check_files()
        return connect(self._path, reader=True)

    def _return_connection(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
