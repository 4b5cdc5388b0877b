"""Commands that run inside a write transaction. Used by the commit thread only; `committer.py` begins and commits around them.

The commit thread remembers, for every lease it holds, if its token is valid and the thread's newest seq. `PRAGMA data_version`
shows in each transaction if any other connection has written since: if not, the remembered values hold and an append
needs no query; if so, `external_changes.py` reads what was written and `apply_external_changes` updates them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.errors import (
    AgentMismatch,
    IdempotencyConflict,
    LeaseLost,
    LedgerError,
    StaleCursor,
    ThreadBusy,
    ThreadExists,
    UnknownThread,
)
from ambient_runner.ledger.base import LeaseHeld
from ambient_runner.ledger.commit_jobs import GrantedLease, PublishedBatch
from ambient_runner.ledger.facts import batch_key
from ambient_runner.ledger.records import (
    IDEMPOTENCY_KEY_TTL_MS,
    RUNTIME,
    Batch,
    Checkpoint,
    IdempotencyClaim,
    ThreadKey,
    ThreadLabels,
    new_epoch,
)
from ambient_runner.ledger.sqlite import checkpoints, erasure, queries, row_index, thread_row
from ambient_runner.ledger.sqlite.row_index import RowIndex

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from ambient_runner.ledger.buffered_writer import Append
    from ambient_runner.ledger.records import Fact, ThreadStatus
    from ambient_runner.ledger.sqlite.external_changes import SqliteChanges
    from ambient_runner.ledger.sqlite.workers import Worker

_LEASE = "SELECT worker, run, scope, digest, token, since FROM lease WHERE tenant = ? AND owner = ? AND id = ?"
_NEW_LEASE = """
INSERT INTO lease (tenant, owner, id, run, worker, scope, digest, since)
VALUES (?, ?, ?, ?, ?, ?, ?, coalesce((SELECT max(no) FROM batch), 0)) RETURNING token, since
"""
_THREAD = f"SELECT t.no, t.agent, t.epoch, {queries.LAST_INDEXED} FROM thread t WHERE t.tenant = ? AND t.owner = ? AND t.id = ?"  # noqa: S608
_RUN = "SELECT last, first FROM run WHERE thread_no = ? AND key = ?"
_FENCE = "SELECT 1 FROM lease WHERE token = ?"
_INSERT = "INSERT INTO batch (thread_no, first, last, run, owner, kind, ts, body) VALUES "
# Every call into SQLite releases the GIL and waits to get it back, so one statement inserts many rows; the connection caches it.
_MAX_ROWS_PER_INSERT = 128
_INSERTS = [_INSERT + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * count) for count in range(_MAX_ROWS_PER_INSERT + 1)]
_NEW_RUN = "INSERT INTO run (thread_no, key, run_id, first) VALUES (?, ?, ?, ?)"
_NEW_KEY = "INSERT INTO idempotency (scope, digest, used, tenant, owner, id, run) VALUES (?, ?, ?, ?, ?, ?, ?)"
_STOP = "UPDATE lease SET stop = ? WHERE token = ? AND stop IS NULL"


_Row = tuple[int, int, int, str, str, str, int, bytes]
"""A row of `batch` to insert."""


class _LeaseRow(NamedTuple):
    """The columns of `_LEASE`: the lease of a thread, of any process."""

    worker: int
    run: str
    scope: str | None
    digest: str | None
    token: int
    since: int


class _ThreadRow(NamedTuple):
    """The columns of `_THREAD`."""

    no: int
    agent: str
    epoch: str
    last_indexed: int


@dataclass(slots=True, eq=False)
class Lease:
    """A lease of this process, as the commit thread remembers it."""

    key: ThreadKey
    run: str
    epoch: str
    token: int
    since: int
    """The newest row of `batch` when it was acquired: all unindexed rows of the thread come after it."""
    thread_no: int
    """0 until the thread exists."""
    last: int
    newest: int
    """The newest entry of this run; 0 if it has none."""
    has_begun: bool
    has_ended: bool
    checked: int
    """Value of `SqliteCommands.rollbacks` when `token` and `last` were last verified."""
    error: LedgerError | None = None

    def to_granted(self) -> GrantedLease:
        return GrantedLease(
            token=self.token,
            epoch=self.epoch,
            last=self.last,
            has_thread=self.thread_no > 0,
            has_begun=self.has_begun,
            has_ended=self.has_ended,
        )


@dataclass(slots=True, eq=False)
class SqliteCommands:
    """The WriteCommands of this store. If one raises, its job's savepoint undoes what it wrote.

    What appends and erasures change of a Lease is changed at once, and undone or queried again after a rollback; all other memory is
    updated in `after_commit`.
    """

    connection: sqlite3.Connection
    worker: Worker
    rollbacks: int = 0
    now: int = 0
    """Milliseconds since 1970, one value per transaction."""
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    by_thread: dict[int, Lease] = field(default_factory=dict[int, Lease])
    tickets: set[int] = field(default_factory=set[int])
    read_threads: set[ThreadKey] = field(default_factory=set[ThreadKey])
    """Threads that this process is registered to read."""
    newest_no: int = 0
    """Number of the last batch row inserted in this transaction; 0 if there is none."""
    published: list[PublishedBatch] = field(default_factory=list[PublishedBatch])
    _rows: list[_Row] = field(default_factory=list[_Row])
    _erased: list[Lease] = field(default_factory=list[Lease])
    """The leases of the threads that this transaction erases."""
    after_commit: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])
    row_index: RowIndex = field(init=False)

    def __post_init__(self) -> None:
        self.row_index = RowIndex(self.connection)

    def apply_external_changes(self, changes: SqliteChanges) -> None:
        """Update the remembered leases: another process may have taken one over, or appended facts to its thread."""
        for token, lease in self.leases.items():
            if token not in changes.held_leases and lease.error is None:
                lease.error = LeaseLost()
                self.row_index.evict_thread(lease.thread_no)
        for no, last in changes.newest_by_thread.items():
            if (lease := self.by_thread.get(no)) and lease.error is None:
                lease.last = last
                self.row_index.invalidate((no,))

    def on_rollback(self) -> None:
        """Discard what was remembered during a transaction that was rolled back."""
        self.rollbacks += 1
        for lease in self._erased:
            lease.error = None
        self._erased.clear()
        self.row_index.reset_after_rollback(self.by_thread)

    def start_transaction(self) -> None:
        self.now = time.time_ns() // 1_000_000
        self.published = []
        self._rows = []
        self.newest_no = 0
        self.after_commit = []

    def acquire_lease(
        self, key: ThreadKey, run: str, claim: IdempotencyClaim | None, ticket: int | None
    ) -> GrantedLease:
        return self._acquire(key, run, claim, ticket, new_epoch()).to_granted()

    def begin_thread(
        self,
        key: ThreadKey,
        run: str,
        facts: Sequence[Fact],
        epoch: str,
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str,
    ) -> GrantedLease:
        lease = self._acquire(key, run, claim, None, epoch)
        if lease.thread_no:
            raise ThreadExists
        self._begin(lease, None, facts, run_id, agent, claim, title)
        return lease.to_granted()._replace(has_begun=True)

    def _acquire(
        self, key: ThreadKey, run: str, claim: IdempotencyClaim | None, ticket: int | None, epoch: str
    ) -> Lease:
        """Return the lease of the thread; `epoch` is that of a thread that does not exist yet."""
        live = self.worker.live_workers(self.connection)
        held = self._find_lease(key)
        if held and held.worker in live:
            raise LeaseHeld(held.run, _claim_of(held))
        if queries.count_earlier_tickets(self.connection, key, ticket, live):
            raise LeaseHeld("", None)
        self.worker.renew_leases_if_due(self.connection)
        if held:
            self._end_lease(key, held.token, held.since)
        if ticket is not None:
            self.connection.execute("DELETE FROM ticket WHERE no = ?", (ticket,))
        scope = (claim.scope, claim.digest) if claim else (None, None)
        token, since = self.connection.execute(_NEW_LEASE, (*key, run, self.worker.id, *scope)).fetchone()
        lease = self._build_lease(key, run, token, since, epoch)
        self.after_commit.append(lambda: self._remember_lease(lease, ticket))
        return lease

    def begin_run(
        self, token: int, facts: Sequence[Fact], run_id: str, agent: str, claim: IdempotencyClaim | None, title: str
    ) -> int:
        lease = self.leases.get(token)
        if lease is None:
            raise LeaseLost
        self.verify_lease(lease)
        thread = self._find_thread(lease.key)
        return self._begin(lease, thread, facts, run_id, agent, claim, title)

    def _begin(
        self,
        lease: Lease,
        thread: _ThreadRow | None,
        facts: Sequence[Fact],
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str,
    ) -> int:
        """Begin the run of a lease; `thread` is None if its thread does not exist."""
        if thread and thread.agent != agent:
            raise AgentMismatch
        if claim:
            self._claim_key(lease.key, lease.run, claim)
        no = thread.no if thread else self._new_thread(lease, agent, title)
        # Facts may have been appended since the lease was acquired, even in this transaction.
        first = (self._newest_seq(no, thread.last_indexed, lease.since) if thread else 0) + 1
        self.connection.execute(_NEW_RUN, (no, lease.run, run_id, first))
        last = self._write_facts(lease.key, lease.epoch, no, lease.run, facts, first)
        if thread:
            new_title = title if title and not thread_row.has_title(self.connection, no) else None
            self._touch_thread(no, lease.key, ThreadLabels(status="running", title=new_title))
        self.after_commit.append(lambda: self._mark_begun(lease, no, last))
        return first

    def append_lines(self, lease: Lease, append: Append) -> None:
        """Queue the rows of an append; `insert_rows` must follow. The hot path: no SQL if no other process wrote. Raises: LeaseLost."""
        self.verify_lease(lease)
        if append.lines:
            first = lease.last + 1
            lease.last = lease.newest = first + len(append.lines) - 1
            batch = Batch(
                first=first,
                owner=RUNTIME,
                kind="",
                run=lease.run,
                ts=self.now,
                lines=append.lines,
                text=append.text,
                events=append.events if append.text is None else (),
                size=append.size,
            )
            self._queue_row(lease.key, lease.epoch, lease.thread_no, batch)
        if append.end_status is not None:
            self._finish_run(lease, append.end_status)
            if append.checkpoint is not None:
                checkpoints.store_checkpoint(self.connection, lease.thread_no, append.checkpoint)

    def insert_rows(self) -> None:
        """Insert the rows that were queued."""
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), _MAX_ROWS_PER_INSERT):
            chunk = rows[start : start + _MAX_ROWS_PER_INSERT]
            values = list(chain.from_iterable(chunk))
            self.newest_no = self.connection.execute(_INSERTS[len(chunk)], values).lastrowid or 0
            # One statement numbers its rows consecutively.
            for row, (no, first, last, *_) in enumerate(chunk, self.newest_no - len(chunk) + 1):
                self.row_index.add_row(no, first, last, row)

    def release_lease(self, token: int) -> None:
        lease = self.leases.get(token)
        if lease and not isinstance(lease.error, LeaseLost):
            self.row_index.index_thread(lease.thread_no)
        self.connection.execute("DELETE FROM lease WHERE token = ?", (token,))
        self.after_commit.append(lambda: self._drop_lease(token))

    def join_queue(self, key: ThreadKey, depth: int) -> int:
        self.worker.renew_leases(self.connection)
        live = self.worker.live_workers(self.connection)
        rows = self.connection.execute("SELECT no, worker FROM ticket WHERE tenant = ? AND owner = ? AND id = ?", key)
        waiting = rows.fetchall()
        if sum(worker in live for _, worker in waiting) >= depth:
            raise ThreadBusy
        dead = [(no,) for no, worker in waiting if worker not in live]
        self.connection.executemany("DELETE FROM ticket WHERE no = ?", dead)
        insert = "INSERT INTO ticket (tenant, owner, id, worker) VALUES (?, ?, ?, ?)"
        ticket = self.connection.execute(insert, (*key, self.worker.id)).lastrowid or 0
        self.after_commit.append(lambda: self.tickets.add(ticket))
        return ticket

    def leave_queue(self, ticket: int) -> None:
        self.connection.execute("DELETE FROM ticket WHERE no = ?", (ticket,))
        self.after_commit.append(lambda: self.tickets.discard(ticket))

    def add_reader(self, key: ThreadKey) -> None:
        self.worker.renew_leases(self.connection)
        self.connection.execute("INSERT OR IGNORE INTO reader VALUES (?, ?, ?, ?)", (*key, self.worker.id))
        self.after_commit.append(lambda: self.read_threads.add(key))

    def remove_reader(self, key: ThreadKey) -> None:
        self.connection.execute(
            "DELETE FROM reader WHERE tenant = ? AND owner = ? AND id = ? AND worker = ?", (*key, self.worker.id)
        )
        self.after_commit.append(lambda: self.read_threads.discard(key))

    @property
    def needs_renewal(self) -> bool:
        """True if other processes must know that this one is alive: for its leases, its tickets and its readers."""
        return bool(self.leases or self.tickets or self.read_threads)

    def request_stop(self, key: ThreadKey, reason: str, run: str) -> int | None:
        """Return the token of the lease that was asked to stop; None if no live one matches."""
        held = self._find_lease(key)
        if not held or (run and held.run != run) or held.worker not in self.worker.live_workers(self.connection):
            return None
        self.connection.execute(_STOP, (reason, held.token))
        return held.token

    def append_facts(
        self,
        key: ThreadKey,
        facts: Sequence[Fact],
        expect: int | None,
        labels: ThreadLabels | None,
        claim: IdempotencyClaim | None,
    ) -> int:
        thread = self._find_thread(key)
        if thread is None:
            raise UnknownThread
        held = self._find_lease(key)
        last = self._newest_seq_of_thread(thread, held)
        if expect is not None:
            if held and held.worker in self.worker.live_workers(self.connection):
                raise ThreadBusy
            if last != expect:
                raise StaleCursor
        if claim:
            self._claim_key(key, "", claim)
        if not facts:
            return last
        last = self._write_facts(key, thread.epoch, thread.no, "", facts, last + 1)
        self._touch_thread(thread.no, key, labels)
        if not held:
            self.row_index.index_thread(thread.no)
        elif (lease := self.by_thread.get(thread.no)) and lease.token == held.token:
            lease.last = last
        elif held.worker == self.worker.id:
            # The lease was acquired, or its run begun, in this transaction: it is remembered, with an earlier entry, after the commit.
            self.row_index.invalidate((thread.no,))
            self.after_commit.append(lambda: self._advance_lease(held.token, last))
        else:
            self.row_index.evict_thread(thread.no)  # Another process holds the lease, and so owns the unindexed rows.
        return last

    def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, epoch: str) -> None:
        thread = self._find_thread(key)
        if thread is None or epoch not in ("", thread.epoch):
            raise UnknownThread
        if checkpoint.seq > self._newest_seq_of_thread(thread, self._find_lease(key)):
            raise ValueError("A checkpoint cannot be ahead of its thread.")
        erasure.trim_thread(self.connection, thread.no, checkpoint)

    def erase_thread(self, key: ThreadKey) -> bool:
        thread = self._find_thread(key)
        if thread is None:
            return False
        erasure.erase_thread(self.connection, key, thread.no, thread.epoch, self.now)
        self.row_index.evict_thread(thread.no)
        if lease := self.by_thread.get(thread.no):
            lease.error = LeaseLost()
            self._erased.append(lease)
            self.after_commit.append(self._erased.clear)
        self.published.append(PublishedBatch(key, thread.epoch, None))
        return True

    def verify_lease(self, lease: Lease) -> None:
        """Fence: raise LeaseLost unless the token still holds the thread's lease, as remembered. After a rollback, query it."""
        if lease.error is None and lease.checked != self.rollbacks:
            row = self.connection.execute(_FENCE, (lease.token,)).fetchone()
            if row is None:
                lease.error = LeaseLost()
            else:
                thread = self._find_thread(lease.key)
                lease.last = self._newest_seq(lease.thread_no, thread.last_indexed, lease.since) if thread else 0
                lease.checked = self.rollbacks
        if lease.error is not None:
            raise lease.error

    def _build_lease(self, key: ThreadKey, run: str, token: int, since: int, epoch_if_new: str) -> Lease:
        no, _, epoch, last = self._find_thread(key) or _ThreadRow(0, "", epoch_if_new, 0)
        row = self.connection.execute(_RUN, (no, run)).fetchone() if no else None
        return Lease(
            key=key,
            run=run,
            epoch=epoch,
            token=token,
            since=since,
            thread_no=no,
            last=last,
            newest=self._newest_seq_of_run(no, run, row[1]) if row else 0,
            has_begun=row is not None,
            has_ended=row is not None and row[0] != queries.OPEN_RUN,
            checked=self.rollbacks,
        )

    def _find_lease(self, key: ThreadKey) -> _LeaseRow | None:
        row = self.connection.execute(_LEASE, key).fetchone()
        return _LeaseRow._make(row) if row else None

    def _find_thread(self, key: ThreadKey) -> _ThreadRow | None:
        row = self.connection.execute(_THREAD, key).fetchone()
        return _ThreadRow._make(row) if row else None

    def _newest_seq_of_thread(self, thread: _ThreadRow, held: _LeaseRow | None) -> int:
        """Return the newest seq of a thread; `held` is its lease. Without one, all its rows are indexed."""
        return self._newest_seq(thread.no, thread.last_indexed, held.since) if held else thread.last_indexed

    def _newest_seq(self, no: int, indexed: int, since: int) -> int:
        """Return the newest seq of a thread whose lease was acquired after row `since`."""
        unindexed = [last for (last,) in row_index.unindexed_rows(self.connection, no, "b.last", since)]
        return unindexed[-1] if unindexed else indexed

    def _newest_seq_of_run(self, no: int, run: str, first: int) -> int:
        found = row_index.batch_rows(self.connection, no, "b.run, b.last", first)
        return max((last for owner, last in found if owner == run), default=0)

    def _end_lease(self, key: ThreadKey, token: int, since: int) -> None:
        """Delete the lease of a dead process; its unindexed rows are indexed first."""
        if thread := self._find_thread(key):
            self.row_index.find_and_index(thread.no, since)
        self.connection.execute("DELETE FROM lease WHERE token = ?", (token,))

    def _remember_lease(self, lease: Lease, ticket: int | None) -> None:
        self.leases[lease.token] = lease
        if lease.thread_no:
            self.by_thread[lease.thread_no] = lease
        if ticket is not None:
            self.tickets.discard(ticket)

    def _mark_begun(self, lease: Lease, no: int, last: int) -> None:
        lease.thread_no, lease.has_begun, lease.newest = no, True, last
        lease.last = max(lease.last, last)  # A fact may have followed in the same transaction.
        self.by_thread[no] = lease

    def _advance_lease(self, token: int, last: int) -> None:
        if lease := self.leases.get(token):
            lease.last = max(lease.last, last)

    def _drop_lease(self, token: int) -> None:
        lease = self.leases.pop(token, None)
        if lease and self.by_thread.get(lease.thread_no) is lease:
            del self.by_thread[lease.thread_no]

    def _claim_key(self, key: ThreadKey, run: str, claim: IdempotencyClaim) -> None:
        self.connection.execute("DELETE FROM idempotency WHERE used <= ?", (self.now - IDEMPOTENCY_KEY_TTL_MS,))
        if self.connection.execute("SELECT 1 FROM idempotency WHERE scope = ?", (claim.scope,)).fetchone():
            raise IdempotencyConflict
        self.connection.execute(_NEW_KEY, (claim.scope, claim.digest, self.now, *key, run))

    def _new_thread(self, lease: Lease, agent: str, title: str) -> int:
        return thread_row.insert_thread(self.connection, lease.key, agent, lease.epoch, title, self.now)

    def _touch_thread(self, no: int, key: ThreadKey, labels: ThreadLabels | None) -> None:
        thread_row.touch_thread(self.connection, no, key, self.now, labels)

    def _finish_run(self, lease: Lease, status: ThreadStatus) -> None:
        last = lease.newest or lease.last
        self.connection.execute(
            "UPDATE run SET last = ? WHERE thread_no = ? AND key = ?", (last, lease.thread_no, lease.run)
        )
        self._touch_thread(lease.thread_no, lease.key, ThreadLabels(status=status))

    def _write_facts(self, key: ThreadKey, epoch: str, no: int, run: str, facts: Sequence[Fact], first: int) -> int:
        for (owner, kind), group in groupby(facts, batch_key):
            lines = [fact.body for fact in group]
            batch = Batch(first=first, owner=owner, kind=kind, run=run, ts=self.now, lines=lines)
            self._queue_row(key, epoch, no, batch)
            first += len(lines)
        self.insert_rows()
        return first - 1

    def _queue_row(self, key: ThreadKey, epoch: str, no: int, batch: Batch) -> None:
        body = b"\n".join(batch.lines)
        self._rows.append((no, batch.first, batch.last, batch.run, batch.owner, batch.kind, batch.ts, body))
        self.published.append(PublishedBatch(key, epoch, batch))


def _claim_of(held: _LeaseRow) -> IdempotencyClaim | None:
    """Return the idempotency key with which a lease was acquired; None if there was none."""
    if held.scope is None or held.digest is None:
        return None
    return IdempotencyClaim(scope=held.scope, digest=held.digest)
