"""The one thread that writes: it takes everything queued since its last commit into one transaction, and tells the loop afterwards.

It also renews this worker's lease and polls for what other processes did, so that a blocked event loop loses no lease.
Appends need no savepoint: they are checked before they write. Anything else runs inside one, so that a refusal undoes
only itself.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ambient_runner.errors import LeaseLost, LedgerError, RunnerError
from ambient_runner.ledger.buffered_writer import Append
from ambient_runner.ledger.sqlite.commands import Published, Writes
from ambient_runner.ledger.sqlite.connection import begin, connect, ledger_error, prepare, primary_code
from ambient_runner.ledger.sqlite.external_changes import News, Reporter
from ambient_runner.ledger.sqlite.wal import Checkpointer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ambient_runner.ledger.sqlite.workers import Worker

POLL = 0.02
"""Seconds between looks at what other processes did, while anybody here cares."""
_PAGE = 4096
_LARGE = 256
"""Lines of a batch whose readers are told of it before it is committed."""
# Errors of one job's data; the others in its transaction are tried again without it.
_POISON = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """Something to do in a transaction; the future gets its result once that is committed."""

    work: Callable[[Writes], Any]
    future: asyncio.Future[Any]
    insist: bool = False
    """Whether it must happen in the end: a failed one is answered, and tried again with every transaction that follows."""
    durable: bool = True
    """Whether it must outlive the machine. What is said about leases need not: with the power, their holders are gone too."""


@dataclass(slots=True, eq=False)
class Outcome:
    """What a transaction did, for the loop. Everything in it is committed."""

    news: News | None = None
    published: list[Published] = field(default_factory=list[Published])
    written: list[tuple[Append, int]] = field(default_factory=list["tuple[Append, int]"])
    """Appends, with the newest seq of their run."""
    refused: list[tuple[Append, LedgerError]] = field(default_factory=list["tuple[Append, LedgerError]"])
    answers: list[tuple[Job, Any, BaseException | None]] = field(
        default_factory=list[tuple[Job, Any, "BaseException | None"]]
    )


class Committer(threading.Thread):
    """Owns the writing connection from `run` to the end."""

    def __init__(
        self,
        path: Path,
        worker: Worker,
        foresee: Callable[[list[Published]], None],
        deliver: Callable[[Outcome], None],
        opened: Callable[[RunnerError | None], None],
    ) -> None:
        super().__init__(name="ledger-commits", daemon=True)
        self.watched = False
        """Set by the loop: whether anyone there waits for what other processes do."""
        self.paused = False
        """Whether it neither renews nor looks around, only commits: what others see of a process that was stopped."""
        self._path = path
        self._worker = worker
        self._foresee = foresee
        self._deliver = deliver
        self._opened = opened
        self._queue: SimpleQueue[list[Append] | Job | None] = SimpleQueue()
        self._closing = False
        self._renewed = 0.0
        self._syncs = True
        self._insisted: list[Job] = []
        self._current: list[Append | Job] = []

    def submit(self, work: list[Append] | Job) -> None:
        self._queue.put(work)

    def nudge(self) -> None:
        """Look at once: somebody began to care."""
        self._queue.put(None)

    def close(self) -> None:
        """Commit what is queued, give everything back, end the thread."""
        self._closing = True
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        try:
            prepare(self._path)
            connection = connect(self._path)
        except RunnerError as error:
            self._opened(error)
            return
        except sqlite3.Error as error:
            self._opened(ledger_error(error))
            return
        with closing(connection):
            self._work(connection)

    def _work(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._writes = Writes(connection, self._worker)
        self._checkpointer = Checkpointer(self._path)
        try:
            self._in_transaction(self._worker.join)
            self._renewed = self._worker.clock()
            self._reporter = Reporter(connection)
        except sqlite3.Error as error:
            self._opened(ledger_error(error))
            return
        self._checkpointer.start()
        self._opened(None)
        try:
            while not self._closing or not self._queue.empty():
                self._turn()
            self._leave()
        finally:
            self._refuse_the_rest()
            self._checkpointer.close()

    def _refuse_the_rest(self) -> None:
        """Should this thread ever die of a mistake, nobody waits for it for ever."""
        work = [*self._current, *self._queued_now()]
        if work:
            self._deliver(self._failure(work, LedgerError("The store has stopped working. Restart the server."), None))

    def _turn(self) -> None:
        self._current = work = self._gather()
        if work or self._insisted or self._renewal_is_due():
            self._commit(work)
        elif not self.paused:
            self._poll()
        self._current = []
        if self._checkpointer.overdue:
            self._catch_up()

    def _gather(self) -> list[Append | Job]:
        """Everything that is queued; waits for something to do."""
        try:
            first = self._queue.get(timeout=self._patience())
        except Empty:
            return []
        return [*_unpacked(first), *self._queued_now()]

    def _queued_now(self) -> list[Append | Job]:
        work: list[Append | Job] = []
        try:
            while True:
                work.extend(_unpacked(self._queue.get_nowait()))
        except Empty:
            return work

    def _patience(self) -> float:
        holding = bool(self._writes.leases or self._writes.tickets)
        return POLL if self.watched or holding else self._worker.lease / 3

    def _renewal_is_due(self) -> bool:
        if self.paused or not (self._writes.leases or self._writes.tickets):
            return False
        return self._worker.clock() - self._renewed >= self._worker.lease / 3

    def _poll(self) -> None:
        try:
            if news := self._read_news():
                self._deliver(Outcome(news=news))
        except sqlite3.Error:
            logger.exception("cannot see what other processes wrote")

    def _read_news(self) -> News | None:
        if not self._reporter.changed():
            return None
        news = self._reporter.read(self._worker.id)
        self._writes.learn(news)
        return news

    def _commit(self, work: list[Append | Job]) -> None:
        outcome = Outcome()
        try:
            self._attempt(work, outcome)
        except sqlite3.Error as error:
            self._roll_back()
            if primary_code(error) in _POISON and len(work) > 1:
                for one in work:
                    self._commit([one])
                return
            outcome = self._failure(work, ledger_error(error), outcome.news)
        self._deliver(outcome)

    def _attempt(self, work: list[Append | Job], outcome: Outcome) -> None:
        writes = self._writes
        self._sync_if(any(not isinstance(item, Job) or item.durable for item in work))
        begin(self._connection)
        outcome.news = self._read_news()
        writes.start()
        if self._renewal_is_due():
            self._worker.renew(self._connection)
            writes.after_commit.append(self._note_renewal)
        self._apply([*self._insisted, *work], outcome)
        writes.places.place_ripe()
        if large := [item for item in writes.published if item.batch and len(item.batch.lines) >= _LARGE]:
            self._foresee(large)
        self._connection.execute("COMMIT")
        self._insisted.clear()
        for act in writes.after_commit:
            act()
        outcome.published = writes.published
        self._account(writes.published)

    def _sync_if(self, durable: bool) -> None:
        """Wait for the disk with this transaction, or leave that to the next one that does."""
        if durable != self._syncs:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._syncs = durable

    def _apply(self, work: list[Append | Job], outcome: Outcome) -> None:
        pending: dict[int, Append] = {}
        for item in work:
            if isinstance(item, Job):
                self._append(pending, outcome)
                pending = {}
                self._do(item, outcome)
            elif earlier := pending.get(token := item.writer.token):
                pending[token] = _merge(earlier, item)
            else:
                pending[token] = item
        self._append(pending, outcome)

    def _append(self, pending: dict[int, Append], outcome: Outcome) -> None:
        leases = self._writes.leases
        for token, append in pending.items():
            lease = leases.get(token)
            try:
                if lease is None:
                    raise LeaseLost
                self._writes.append(lease, append)
            except LedgerError as error:
                outcome.refused.append((append, error))
            else:
                outcome.written.append((append, lease.newest))
        self._writes.insert_rows()

    def _do(self, job: Job, outcome: Outcome) -> None:
        writes = self._writes
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

    def _failure(self, work: list[Append | Job], error: LedgerError, news: News | None) -> Outcome:
        """Nothing of the transaction happened. Its writers are done for: their next lines would follow a hole."""
        outcome = Outcome(news=news)
        for item in work:
            if isinstance(item, Job) and item.insist:
                self._insisted.append(item)
                outcome.answers.append((item, None, None))
            elif isinstance(item, Job):
                outcome.answers.append((item, None, error))
            else:
                if lease := self._writes.leases.get(item.writer.token):
                    lease.error = error
                outcome.refused.append((item, error))
        return outcome

    def _account(self, published: list[Published]) -> None:
        self._reporter.wrote(self._writes.newest_no)
        size = sum(_PAGE + item.batch.size for item in published if item.batch)
        self._checkpointer.wrote(size + _PAGE)

    def _note_renewal(self) -> None:
        self._renewed = self._worker.clock()

    def _in_transaction(self, work: Callable[[sqlite3.Connection], None]) -> None:
        begin(self._connection)
        try:
            work(self._connection)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        self._writes.undone()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.exception("cannot roll back")

    def _catch_up(self) -> None:
        self._checkpointer.overdue = False
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            logger.exception("cannot move the WAL into the database")

    def _leave(self) -> None:
        try:
            self._in_transaction(self._worker.leave)
        except sqlite3.Error:
            logger.exception("cannot sign out; the leases end when their time is over")


def _unpacked(item: list[Append] | Job | None) -> Sequence[Append | Job]:
    if isinstance(item, Job):
        return (item,)
    return item or ()


def _merge(earlier: Append, later: Append) -> Append:
    return Append(
        earlier.writer,
        earlier.lines + later.lines,
        earlier.size + later.size,
        earlier.text.followed_by(later.text) if earlier.text else None,
        earlier.ended or later.ended,
    )
