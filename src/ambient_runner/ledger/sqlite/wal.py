"""WAL checkpoints, away from the commit thread; and truncation of the WAL, so that erased content is nowhere on disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.sqlite.connection import connect, map_sqlite_errors

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT_BYTES = 4 << 20
"""Bytes written since the last checkpoint after which the next one is due."""
MAX_WAL_PAGES = 16_000
"""Pages in the WAL beyond which the commit thread pauses for a checkpoint: only then can the WAL restart."""


class WalCheckpointer(threading.Thread):
    """Runs passive checkpoints once enough was written. They never block a writer or a reader.

    The connection is opened here and not on the thread, so that a file that cannot be opened fails the opening of the store.
    Raises: sqlite3.Error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(name="ledger-checkpoints", daemon=True)
        self._connection = connect(path, reader=True)
        self._due = threading.Event()
        self._is_closing = False
        self._written = 0
        self.is_overdue = False
        """True if passive checkpoints cannot keep up: the commit thread should run one between two commits."""

    def add_written(self, size: int) -> None:
        self._written += size
        if self._written >= CHECKPOINT_BYTES:
            self._written = 0
            self._due.set()

    def close(self) -> None:
        self._is_closing = True
        self._due.set()
        self.join()

    def run(self) -> None:
        with closing(self._connection):
            while not self._is_closing:
                self._due.wait()
                self._due.clear()
                if not self._is_closing:
                    self._run_checkpoint()

    def _run_checkpoint(self) -> None:
        try:
            _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return  # The WAL only grows meanwhile; a failing disk shows at the next commit.
        self.is_overdue = pages > MAX_WAL_PAGES


def truncate_wal(path: Path, timeout: float) -> None:
    """Write everything into the database file and empty the WAL. Waits for readers and writers that block it. Raises: LedgerError."""
    deadline = time.monotonic() + timeout
    with map_sqlite_errors(), closing(connect(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 50")
        while _is_blocked(connection):
            if time.monotonic() > deadline:
                raise LedgerError(
                    "The thread is erased, but a reader keeps the WAL from being truncated, which still contains it. Try again."
                )
            time.sleep(0.002)


def _is_blocked(connection: sqlite3.Connection) -> bool:
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return True
        raise
