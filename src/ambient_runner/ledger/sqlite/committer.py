"""The only thread that writes: it commits everything queued since its last commit in one transaction, then passes the outcome to the loop.

It also renews this worker's leases and polls for changes of other processes, so that a blocked event loop loses no lease.
While the store cannot be written (locked, full, an I/O error) it keeps the appends and tries again, up to its patience.
Appends need no savepoint: they are checked before they write. Any other job runs inside one, so that an error rolls back
only that job.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

from ambient_runner.errors import ConfigError, LeaseLost, LedgerError, RunnerError, StoreUnusable
from ambient_runner.ledger.commit_jobs import CommitJob, CommitOutcome, fail_work
from ambient_runner.ledger.commit_thread import CommitQueue, group_work
from ambient_runner.ledger.sqlite.commands import SqliteCommands
from ambient_runner.ledger.sqlite.connection import (
    begin_immediate,
    connect,
    is_locked,
    ledger_error,
    primary_code,
)
from ambient_runner.ledger.sqlite.external_changes import ChangePoller
from ambient_runner.ledger.sqlite.schema import prepare_database
from ambient_runner.ledger.sqlite.wal import WalCheckpointer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ambient_runner.ledger.buffered_writer import Append
    from ambient_runner.ledger.commit_jobs import CommitWork, ExternalChanges, PublishedBatch
    from ambient_runner.ledger.commit_thread import CommitCallbacks
    from ambient_runner.ledger.sqlite.file_check import OpenedFile
    from ambient_runner.ledger.sqlite.outage import Outage
    from ambient_runner.ledger.sqlite.workers import Worker

POLL_INTERVAL = 0.02
"""Seconds between checks for changes of other processes, while a reader or a lease of this process needs them."""
_PAGE_BYTES = 4096
"""Bytes of a database page: the estimate of what a row, and a commit, write to the WAL besides their lines."""
_PREPARED_LINES = 256
"""Lines of a batch from which on readers may prepare it before it is committed."""
_RETRY_INTERVAL = 0.1
"""Seconds between two attempts while the store cannot be written."""
_LONG_WAIT = 0.5
"""Seconds of waiting for the lock from which on other processes may have been unable to renew their leases."""
# Errors caused by the data of one job; the others in its transaction are retried without it.
_DATA_ERRORS = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE)

logger = logging.getLogger(__name__)


class Committer(threading.Thread):
    """The commit thread. It owns the writing connection while it runs."""

    def __init__(
        self,
        path: Path,
        file: OpenedFile,
        worker: Worker,
        outage: Outage,
        callbacks: CommitCallbacks,
    ) -> None:
        super().__init__(name="ledger-commits", daemon=True)
        self.is_polling = self.is_paused = False
        self._outage = outage
        self._path = path
        self._file = file
        self._worker = worker
        self._callbacks = callbacks
        self._queue = CommitQueue()
        self._is_closing = False
        self._renewed = 0.0
        self._is_syncing = True
        self._current: list[CommitWork] = []

    def submit(self, work: list[Append] | CommitJob) -> None:
        self._queue.submit(work)

    def wake(self) -> None:
        self._queue.wake()

    def close(self) -> None:
        self._is_closing = True
        self._queue.wake()
        self.join()

    def run(self) -> None:
        try:
            self._retry_while_locked(lambda: prepare_database(self._path))
            connection = connect(self._path)
        except RunnerError as error:
            self._callbacks.on_opened(error)
            return
        except sqlite3.Error as error:
            self._callbacks.on_opened(ledger_error(error))
            return
        with closing(connection):
            self._run_loop(connection)

    def _retry_while_locked(self, work: Callable[[], None]) -> None:
        """Do a part of opening the store. If another process has locked it, try again as long as a run would wait. Raises: as `work`."""
        deadline = time.monotonic() + self._outage.patience
        is_reported = False
        while True:
            try:
                work()
            except (LedgerError, sqlite3.Error) as error:
                if not is_locked(error) or time.monotonic() >= deadline:
                    raise
                if not is_reported:
                    logger.warning(
                        "The store %s is locked by another process; waiting for it up to %g s (`store_patience`)",
                        self._path,
                        self._outage.patience,
                    )
                is_reported = True
            else:
                return

    def _run_loop(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._commands = SqliteCommands(connection, self._worker)
        try:
            self._retry_while_locked(lambda: self._run_in_transaction(self._worker.register))
            self._file.remember()
            self._renewed = self._worker.clock()
            self._poller = ChangePoller(connection)
            self._checkpointer = WalCheckpointer(self._path)
        except StoreUnusable as error:
            self._callbacks.on_opened(ConfigError(error.message))
            return
        except sqlite3.Error as error:
            self._callbacks.on_opened(ledger_error(error))
            return
        self._checkpointer.start()
        self._callbacks.on_opened(None)
        try:
            while not self._is_closing or not self._queue.is_empty():
                self._run_once()
            if self._queue.held:
                self._commit_work([])
            self._leave_store()
        finally:
            self._fail_remaining()
            self._checkpointer.close()

    def _fail_remaining(self) -> None:
        """Fail what is left, so that no caller waits forever if this thread dies of a bug."""
        self._is_closing = True
        if work := [*self._queue.held, *self._current, *self._queue.take_queued()]:
            error = LedgerError("The store has stopped working. Restart the server.")
            self._callbacks.on_outcome(self._failed_outcome(work, error, None))

    def _run_once(self) -> None:
        self._current = work = self._wait_for_work()
        if work or self._queue.held or self._outage.is_retrying or self._renewal_is_due():
            self._commit_work(work)
        elif not self.is_paused:
            self._poll_changes()
        self._current = []
        if self._checkpointer.is_overdue:
            self._checkpoint_overdue_wal()

    def _wait_for_work(self) -> list[CommitWork]:
        """Return everything that is queued; wait until there is something, or until the next poll or attempt is due."""
        if self._outage.is_retrying and not self._is_closing:
            time.sleep(_RETRY_INTERVAL)
            return self._queue.take_queued()
        return self._queue.wait_for_work(self._wait_timeout())

    def _wait_timeout(self) -> float:
        holding = bool(self._commands.leases or self._commands.tickets) and self._outage.failure is None
        return POLL_INTERVAL if self.is_polling or holding else self._worker.lease / 3

    def _renewal_is_due(self) -> bool:
        if self.is_paused or not self._commands.needs_renewal:
            return False
        return self._worker.clock() - self._renewed >= self._worker.lease / 3

    def _poll_changes(self) -> None:
        try:
            self._file.check_files()
            with self._file.detect_damage():
                changes = self._read_changes()
            self._outage.end()
            if changes:
                self._callbacks.on_outcome(CommitOutcome(changes=changes))
        except StoreUnusable as error:
            self._callbacks.on_outcome(self._unusable_outcome([], error))
        except sqlite3.Error:
            logger.exception("Cannot read what other processes wrote to the store %s; retrying", self._path)

    def _read_changes(self) -> ExternalChanges | None:
        if not self._poller.has_changed():
            return None
        self._file.check_version(self._connection)  # Only another process can have migrated it.
        changes = self._poller.read_changes(self._worker.id)
        self._commands.apply_external_changes(changes)
        return changes

    def _commit_work(self, new: list[CommitWork]) -> None:
        work = [*self._queue.take_held(), *new]
        outcome = CommitOutcome()
        began = time.monotonic()
        try:
            with self._file.detect_damage():
                self._try_commit(work, outcome)
        except StoreUnusable as error:
            self._roll_back()
            outcome = self._unusable_outcome(work, error)
        except sqlite3.Error as error:
            self._roll_back()
            if primary_code(error) in _DATA_ERRORS and len(work) > 1:
                for item in work:
                    self._commit_work([item])
                return
            if primary_code(error) not in _DATA_ERRORS:
                self._outage.begin(error, began)
            outcome = self._failed_outcome(work, ledger_error(error), outcome.changes)
        else:
            self._outage.end()
        self._callbacks.on_outcome(outcome)

    def _try_commit(self, work: list[CommitWork], outcome: CommitOutcome) -> None:
        writes = self._commands
        self._set_durable(any(not isinstance(item, CommitJob) or item.is_durable for item in work))
        self._begin()
        outcome.changes = self._read_changes()
        writes.start_transaction()
        # After an outage the leases may have run out: they are renewed before anything is written under them.
        if self._renewal_is_due() or (self._outage.is_retrying and not self.is_paused):
            self._worker.renew_leases(self._connection)
            writes.after_commit.append(self._record_renewal)
        self._apply_work(work, outcome)
        writes.row_index.index_due_spans()
        if large := [item for item in writes.published if item.batch and len(item.batch.lines) >= _PREPARED_LINES]:
            self._callbacks.on_uncommitted(large)
        self._connection.execute("COMMIT")
        for act in writes.after_commit:
            act()
        outcome.published = writes.published
        self._account_written(writes.published)

    def _begin(self) -> None:
        """Begin a write transaction on the file that was opened. Raises: sqlite3.Error, StoreUnusable."""
        began = time.monotonic()
        begin_immediate(self._connection, _RETRY_INTERVAL if self._outage.is_retrying else None)
        if time.monotonic() - began > _LONG_WAIT:
            self._worker.resume_expiry()
        self._file.check_files()

    def _set_durable(self, is_durable: bool) -> None:
        """Wait for the disk with this transaction, or leave that to the next durable one."""
        if is_durable != self._is_syncing:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._is_syncing = is_durable

    def _apply_work(self, work: list[CommitWork], outcome: CommitOutcome) -> None:
        for group in group_work(work):
            if isinstance(group, CommitJob):
                self._run_job(group, outcome)
            else:
                self._write_appends(group, outcome)

    def _write_appends(self, appends: list[Append], outcome: CommitOutcome) -> None:
        leases, ended = self._commands.leases, list[int]()
        for append in appends:
            lease = leases.get(append.writer.token)
            try:
                if lease is None:
                    raise LeaseLost
                self._commands.append_lines(lease, append)
            except LedgerError as error:
                outcome.refused.append((append, error))
            else:
                outcome.committed.append((append, lease.newest))
                if append.end_status is not None:
                    ended.append(lease.token)
        self._commands.insert_rows()
        for token in ended:
            self._commands.release_lease(token)

    def _run_job(self, job: CommitJob, outcome: CommitOutcome) -> None:
        writes = self._commands
        marks = len(writes.published), len(writes.after_commit)
        self._connection.execute("SAVEPOINT job")
        try:
            result = job.work(writes)
        except (RunnerError, ValueError) as error:
            self._connection.execute("ROLLBACK TO job")
            del writes.published[marks[0] :], writes.after_commit[marks[1] :]
            outcome.answers.append((job, None, error))
        else:
            outcome.answers.append((job, result, None))
        self._connection.execute("RELEASE job")

    def _failed_outcome(
        self, work: list[CommitWork], error: LedgerError, changes: ExternalChanges | None
    ) -> CommitOutcome:
        """Return the outcome of a transaction that was rolled back.

        Appends are held while there is patience; after that their writers fail: their next lines would follow a gap.
        """
        keep_appends = not self._is_closing and self._outage.can_retry(error)
        outcome, held = fail_work(work, error, changes, keep_appends=keep_appends)
        self._queue.held += held
        for append, refusal in outcome.refused:
            if lease := self._commands.leases.get(append.writer.token):
                lease.error = refusal
        return outcome

    def _unusable_outcome(self, work: list[CommitWork], error: StoreUnusable) -> CommitOutcome:
        self._outage.mark_unusable(error)
        outcome = self._failed_outcome(work, error, None)
        outcome.unusable = error
        return outcome

    def _account_written(self, published: list[PublishedBatch]) -> None:
        self._poller.skip_own_rows(self._commands.newest_no)
        size = sum(_PAGE_BYTES + item.batch.size for item in published if item.batch)
        self._checkpointer.add_written(size + _PAGE_BYTES)

    def _record_renewal(self) -> None:
        self._renewed = self._worker.clock()

    def _run_in_transaction(self, work: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._begin()
            self._file.check_version(self._connection)
            work(self._connection)
            self._connection.execute("COMMIT")
        except (sqlite3.Error, StoreUnusable):
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        self._commands.on_rollback()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.exception(
                "Cannot roll back a transaction of the store %s; check the disk, then restart the server if writes keep failing",
                self._path,
            )

    def _checkpoint_overdue_wal(self) -> None:
        self._checkpointer.is_overdue = False
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            logger.exception(
                "Cannot checkpoint the WAL of the store %s; it grows until a checkpoint succeeds", self._path
            )

    def _leave_store(self) -> None:
        try:
            self._run_in_transaction(self._worker.unregister)
        except StoreUnusable:
            logger.info("The leases in the store %s are not released; they end with this process", self._path)
        except sqlite3.Error:
            logger.exception(
                "Cannot release the leases in the store %s; they expire after %g seconds",
                self._path,
                self._worker.lease,
            )
