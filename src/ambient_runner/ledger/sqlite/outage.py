"""An outage of the store: the time in which it cannot be written, because it is locked, its disk is full or failing, or it was replaced."""

from __future__ import annotations

import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from ambient_runner.errors import StoreUnusable
from ambient_runner.ledger.sqlite.connection import ledger_error, primary_code

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.sqlite.workers import Worker

__all__ = ["Outage"]

# Errors that pass by themselves, or once an operator has made space.
_TRANSIENT_ERRORS = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
)

logger = logging.getLogger(__name__)


class Outage:
    """The state of an outage, as the commit thread knows it. No lease expires during an outage: its owner cannot renew it."""

    def __init__(self, path: Path, worker: Worker, patience: float) -> None:
        self.failure: LedgerError | None = None
        """The error of the last write; None if the store can be written, as far as is known."""
        self._path = path
        self._worker = worker
        self.patience = patience
        """Seconds for which a run waits."""
        self._since: float | None = None

    @property
    def is_retrying(self) -> bool:
        """True if writing has to be tried again and again until it succeeds."""
        return self._since is not None

    def begin(self, error: sqlite3.Error, began: float) -> None:
        """Record that a transaction failed that began at that time."""
        self.failure = ledger_error(error)
        self._worker.suspend_expiry()
        if self._since is None:
            self._since = began
            logger.error(
                "The store %s cannot be written (%s): %s Runs wait for up to %g s, requests are answered with 503. "
                "Free space on its disk, or end the process that holds its lock",
                self._path,
                error,
                self.failure.message,
                self.patience,
            )

    def mark_unusable(self, error: StoreUnusable) -> None:
        """Record that another program changed the file. Waiting does not help, but a missing file may be put back."""
        if not isinstance(self.failure, StoreUnusable):
            logger.critical(
                "The store %s cannot be used any more: %s", self._path, error.message, exc_info=error.__cause__
            )
        self.failure, self._since = error, None

    def end(self) -> None:
        """Record that the store can be used."""
        if self.failure is None:
            return
        logger.warning("The store %s can be used again", self._path)
        self.failure = self._since = None
        self._worker.resume_expiry()

    def can_retry(self, error: LedgerError) -> bool:
        """Return True if a commit that failed with this error may succeed in the time that is left."""
        cause = error.__cause__
        if self._since is None or not isinstance(cause, sqlite3.Error):
            return False
        return primary_code(cause) in _TRANSIENT_ERRORS and time.monotonic() - self._since < self.patience
