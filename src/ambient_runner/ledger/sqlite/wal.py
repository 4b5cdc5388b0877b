"""Moving the WAL into the database file, away from the committing thread; and emptying it, so that what was erased is nowhere."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.sqlite.connection import connect, mapped_errors

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

ENOUGH = 4 << 20
"""Bytes written since the last checkpoint that make one worth its fsync."""
TOO_LONG = 16_000
"""Pages in the WAL beyond which the committing thread pauses for a checkpoint: only then can the WAL begin anew."""


class Checkpointer(threading.Thread):
    """Makes passive checkpoints when told that enough was written. They never block a writer or a reader."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="ledger-checkpoints", daemon=True)
        self._path = path
        self._due = threading.Event()
        self._closing = False
        self._written = 0
        self.overdue = False
        """Whether passive checkpoints cannot keep up: the committing thread should make one between two commits."""

    def wrote(self, size: int) -> None:
        self._written += size
        if self._written >= ENOUGH:
            self._written = 0
            self._due.set()

    def close(self) -> None:
        self._closing = True
        self._due.set()
        self.join()

    def run(self) -> None:
        try:
            connection = connect(self._path)
        except sqlite3.Error:
            logger.exception("cannot make checkpoints")
            return
        with closing(connection):
            while not self._closing:
                self._due.wait()
                self._due.clear()
                if not self._closing:
                    self._checkpoint(connection)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        try:
            _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return  # The WAL only grows meanwhile; a failing disk shows at the next commit.
        self.overdue = pages > TOO_LONG


def truncate(path: Path, patience: float) -> None:
    """Write everything into the database file and empty the WAL. Readers and writers in the way are waited for. Raises: LedgerError."""
    deadline = time.monotonic() + patience
    with mapped_errors(), closing(connect(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 50")
        while _blocked(connection):
            if time.monotonic() > deadline:
                raise LedgerError("The thread is erased, but a reader keeps the store from overwriting it. Try again.")
            time.sleep(0.002)


def _blocked(connection: sqlite3.Connection) -> bool:
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return True
        raise
