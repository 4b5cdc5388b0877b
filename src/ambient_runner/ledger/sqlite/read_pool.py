"""A few reading connections, each used by one worker thread at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.sqlite.connection import connect, mapped_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

SIZE = 4


class Pool:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._limiter: anyio.CapacityLimiter | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one read transaction, in a worker thread. Raises: LedgerError."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(SIZE)
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with mapped_errors():
            connection = self._take()
            try:
                connection.execute("BEGIN")
                try:
                    return work(connection)
                finally:
                    connection.execute("ROLLBACK")
            finally:
                self._put(connection)

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise LedgerError("The store is closed.")
            if self._idle:
                return self._idle.pop()
        return connect(self._path, reader=True)

    def _put(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
