"""What is done inside a writing transaction. Used by the committing thread only; `committer.py` begins and commits around it.

The thread remembers, for every lease it holds, the token's validity and the thread's newest seq. `PRAGMA data_version`
says in each transaction whether any other connection has written since: if not, what is remembered is true and an append
is one INSERT; if so, `news.py` reads what was written and `learn` takes it in.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.errors import (
    KeyReused,
    LeaseLost,
    LedgerError,
    OtherAgent,
    StaleCursor,
    ThreadBusy,
    UnknownThread,
)
from ambient_runner.ledger.base import KEY_AGE, RUNTIME, Batch, Checkpoint, Held, KeyClaim, ThreadKey
from ambient_runner.ledger.buffered_writer import same_batch
from ambient_runner.ledger.sqlite import erasure, queries, row_index
from ambient_runner.ledger.sqlite.row_index import Places

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from ambient_runner.ledger.base import Fact
    from ambient_runner.ledger.buffered_writer import Append
    from ambient_runner.ledger.sqlite.external_changes import News
    from ambient_runner.ledger.sqlite.workers import Worker

_LEASE = "SELECT worker, run, scope, digest, token, since FROM lease WHERE tenant = ? AND owner = ? AND id = ?"
_TAKE = """
INSERT INTO lease (tenant, owner, id, run, worker, scope, digest, since)
VALUES (?, ?, ?, ?, ?, ?, ?, coalesce((SELECT max(no) FROM batch), 0)) RETURNING token, since
"""
_THREAD = (
    f"SELECT t.no, t.agent, t.epoch, {queries.PLACED} FROM thread t WHERE t.tenant = ? AND t.owner = ? AND t.id = ?"  # noqa: S608
)
_RUN = "SELECT last, first FROM run WHERE thread_no = ? AND key = ?"
_FENCE = "SELECT 1 FROM lease WHERE token = ?"
_INSERT = "INSERT INTO batch (thread_no, first, last, run, owner, kind, ts, body) VALUES "
# Every call into SQLite gives up the GIL and waits to get it back, so many rows go in one statement; the connection keeps them prepared.
_MOST_ROWS = 128
_INSERTS = [_INSERT + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * count) for count in range(_MOST_ROWS + 1)]
_NEXT_UPDATED = "SELECT max(?, coalesce(max(updated) + 1, 0)) FROM thread WHERE tenant = ? AND owner = ?"
_NEW_THREAD = "INSERT INTO thread (tenant, owner, id, agent, epoch, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?)"
_NEW_RUN = "INSERT INTO run (thread_no, key, run_id, first) VALUES (?, ?, ?, ?)"
_NEW_KEY = "INSERT INTO idempotency (scope, digest, used, tenant, owner, id, run) VALUES (?, ?, ?, ?, ?, ?, ?)"
_STOP = "UPDATE lease SET stop = ? WHERE token = ? AND stop IS NULL"


_Row = tuple[int, int, int, str, str, str, int, bytes]
"""A batch as it is inserted."""


@dataclass(slots=True, eq=False)
class Lease:
    """A lease this process holds, as the committing thread knows it."""

    key: ThreadKey
    run: str
    epoch: str
    token: int
    since: int
    """The newest row when it was taken: all of the thread's loose rows come after it."""
    thread_no: int
    """0 until the thread exists."""
    last: int
    newest: int
    """The newest entry of this run; 0 when it has none."""
    begun: bool
    ended: bool
    checked: int
    """How many transactions had been rolled back when `token` and `last` were true."""
    error: LedgerError | None = None


class Published(NamedTuple):
    """Something readers must hear of once it is committed: a batch, or (None) the end of that life of the thread."""

    key: ThreadKey
    life: str
    batch: Batch | None


@dataclass(slots=True, eq=False)
class Writes:
    """The operations. Each checks everything before it changes anything, and leaves memory alone until `after_commit`."""

    connection: sqlite3.Connection
    worker: Worker
    rollbacks: int = 0
    now: int = 0
    """Milliseconds since 1970, one value per transaction."""
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    by_thread: dict[int, Lease] = field(default_factory=dict[int, Lease])
    tickets: set[int] = field(default_factory=set[int])
    newest_no: int = 0
    """Number of the last batch row inserted in this transaction; 0 when there is none."""
    published: list[Published] = field(default_factory=list[Published])
    _rows: list[_Row] = field(default_factory=list[_Row])
    after_commit: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        self.places = Places(self.connection)

    def learn(self, news: News) -> None:
        """Another process wrote. Whose lease it took over, and where it added notes, is known from here on."""
        for token, lease in self.leases.items():
            if token not in news.mine and lease.error is None:
                lease.error = LeaseLost()
                self.places.forget(lease.thread_no)
        for no, last in news.threads.items():
            if (lease := self.by_thread.get(no)) and lease.error is None:
                lease.last = last
                self.places.doubt((no,))

    def undone(self) -> None:
        """The transaction was rolled back: what was remembered while it ran did not happen."""
        self.rollbacks += 1
        self.places.start_anew(self.by_thread)

    def start(self) -> None:
        self.now = time.time_ns() // 1_000_000
        self.published = []
        self._rows = []
        self.newest_no = 0
        self.after_commit = []

    def acquire(self, key: ThreadKey, run: str, claim: KeyClaim | None, ticket: int | None) -> Lease:
        living = self.worker.living(self.connection)
        held = self.connection.execute(_LEASE, key).fetchone()
        if held and held[0] in living:
            raise Held(held[1], KeyClaim(scope=held[2], digest=held[3]) if held[2] is not None else None)
        if queries.tickets_before(self.connection, key, ticket, living):
            raise Held("", None)
        self.worker.renew(self.connection)
        if held:
            self._end_lease(key, held[4], held[5])
        if ticket is not None:
            self.connection.execute("DELETE FROM ticket WHERE no = ?", (ticket,))
        scope = (claim.scope, claim.digest) if claim else (None, None)
        token, since = self.connection.execute(_TAKE, (*key, run, self.worker.id, *scope)).fetchone()
        lease = self._lease(key, run, token, since)
        self.after_commit.append(lambda: self._hold(lease, ticket))
        return lease

    def begin(self, lease: Lease, facts: Sequence[Fact], run_id: str, agent: str, claim: KeyClaim | None) -> int:
        self.verify(lease)
        thread = self.connection.execute(_THREAD, lease.key).fetchone()
        if thread and thread[1] != agent:
            raise OtherAgent
        if claim:
            self._claim(lease, claim)
        no = thread[0] if thread else self._new_thread(lease, agent)
        # A note may have come since the lease was taken, even in this transaction.
        first = (self._newest(no, thread[3], lease.since) if thread else 0) + 1
        self.connection.execute(_NEW_RUN, (no, lease.run, run_id, first))
        last = self._write_facts(lease.key, lease.epoch, no, lease.run, facts, first)
        if thread:
            self._touch(no, lease.key)
        self.after_commit.append(lambda: self._begun(lease, no, last))
        return first

    def append(self, lease: Lease, append: Append) -> None:
        """The hot path: no SQL at all when nobody else wrote; `insert_rows` must follow. Raises: LeaseLost."""
        self.verify(lease)
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
                size=append.size,
            )
            self._insert(lease.key, lease.epoch, lease.thread_no, batch)
        if append.ended:
            self._finish(lease)

    def insert_rows(self) -> None:
        """Write the batches that were appended."""
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), _MOST_ROWS):
            chunk = rows[start : start + _MOST_ROWS]
            values = list(chain.from_iterable(chunk))
            self.newest_no = self.connection.execute(_INSERTS[len(chunk)], values).lastrowid or 0
            # One statement numbers its rows one after the other.
            for row, (no, first, last, *_) in enumerate(chunk, self.newest_no - len(chunk) + 1):
                self.places.added(no, first, last, row)

    def release(self, token: int) -> None:
        lease = self.leases.get(token)
        if lease and not isinstance(lease.error, LeaseLost):
            self.places.place(lease.thread_no)
        self.connection.execute("DELETE FROM lease WHERE token = ?", (token,))
        self.after_commit.append(lambda: self._drop(token))

    def queue(self, key: ThreadKey, depth: int) -> int:
        self.worker.renew(self.connection)
        living = self.worker.living(self.connection)
        rows = self.connection.execute("SELECT no, worker FROM ticket WHERE tenant = ? AND owner = ? AND id = ?", key)
        waiting = rows.fetchall()
        if sum(worker in living for _, worker in waiting) >= depth:
            raise ThreadBusy
        dead = [(no,) for no, worker in waiting if worker not in living]
        self.connection.executemany("DELETE FROM ticket WHERE no = ?", dead)
        insert = "INSERT INTO ticket (tenant, owner, id, worker) VALUES (?, ?, ?, ?)"
        ticket = self.connection.execute(insert, (*key, self.worker.id)).lastrowid or 0
        self.after_commit.append(lambda: self.tickets.add(ticket))
        return ticket

    def leave_queue(self, ticket: int) -> None:
        self.connection.execute("DELETE FROM ticket WHERE no = ?", (ticket,))
        self.after_commit.append(lambda: self.tickets.discard(ticket))

    def request_stop(self, key: ThreadKey, reason: str, run: str) -> int | None:
        """The token of the lease that was asked; None when no living one fits."""
        held = self.connection.execute(_LEASE, key).fetchone()
        if not held or (run and held[1] != run) or held[0] not in self.worker.living(self.connection):
            return None
        self.connection.execute(_STOP, (reason, held[4]))
        return held[4]

    def note(self, key: ThreadKey, facts: Sequence[Fact], expect: int | None) -> int:
        thread = self.connection.execute(_THREAD, key).fetchone()
        if thread is None:
            raise UnknownThread
        no, _, epoch, placed = thread
        held = self.connection.execute(_LEASE, key).fetchone()
        last = self._newest(no, placed, held[5]) if held else placed
        if expect is not None:
            if held and held[0] in self.worker.living(self.connection):
                raise ThreadBusy
            if last != expect:
                raise StaleCursor
        if not facts:
            return last
        last = self._write_facts(key, epoch, no, "", facts, last + 1)
        self._touch(no, key)
        if not held:
            self.places.place(no)
        elif (lease := self.by_thread.get(no)) and lease.token == held[4]:
            lease.last = last
        elif held[0] == self.worker.id:
            self.places.doubt((no,))  # taken in this transaction
        else:
            self.places.forget(no)  # the lease is another's, and so are the thread's loose rows
        return last

    def trim(self, key: ThreadKey, checkpoint: Checkpoint) -> None:
        thread = self.connection.execute(_THREAD, key).fetchone()
        if thread is None:
            raise UnknownThread
        no, placed = thread[0], thread[3]
        held = self.connection.execute(_LEASE, key).fetchone()
        if checkpoint.seq > (self._newest(no, placed, held[5]) if held else placed):
            raise ValueError("a checkpoint cannot be ahead of its thread")
        erasure.trim(self.connection, no, checkpoint)

    def erase(self, key: ThreadKey) -> bool:
        thread = self.connection.execute(_THREAD, key).fetchone()
        if thread is None:
            return False
        no, _, epoch, _ = thread
        erasure.erase(self.connection, key, no, epoch, self.now)
        self.places.forget(no)
        if lease := self.by_thread.get(no):
            lease.error = LeaseLost()
        self.published.append(Published(key, epoch, None))
        return True

    def verify(self, lease: Lease) -> None:
        """Fence: raises LeaseLost unless the token is still the thread's, as `learn` heard. After a rollback it looks for itself."""
        if lease.error is None and lease.checked != self.rollbacks:
            row = self.connection.execute(_FENCE, (lease.token,)).fetchone()
            if row is None:
                lease.error = LeaseLost()
            else:
                thread = self.connection.execute(_THREAD, lease.key).fetchone()
                lease.last = self._newest(lease.thread_no, thread[3], lease.since) if thread else 0
                lease.checked = self.rollbacks
        if lease.error is not None:
            raise lease.error

    def _lease(self, key: ThreadKey, run: str, token: int, since: int) -> Lease:
        thread = self.connection.execute(_THREAD, key).fetchone()
        no, _, epoch, last = thread or (0, "", secrets.token_urlsafe(9), 0)
        row = self.connection.execute(_RUN, (no, run)).fetchone() if no else None
        return Lease(
            key=key,
            run=run,
            epoch=epoch,
            token=token,
            since=since,
            thread_no=no,
            last=last,
            newest=self._newest_of_run(no, run, row[1]) if row else 0,
            begun=row is not None,
            ended=row is not None and row[0] != queries.OPEN,
            checked=self.rollbacks,
        )

    def _newest(self, no: int, placed: int, since: int) -> int:
        """The newest seq of a thread that has a lease taken after row `since`."""
        loose = [last for (last,) in row_index.loose_rows(self.connection, no, "b.last", since)]
        return loose[-1] if loose else placed

    def _newest_of_run(self, no: int, run: str, first: int) -> int:
        found = row_index.rows(self.connection, no, "b.run, b.last", first)
        return max((last for owner, last in found if owner == run), default=0)

    def _end_lease(self, key: ThreadKey, token: int, since: int) -> None:
        """Take a dead holder's lease away; what it left loose is placed first."""
        if thread := self.connection.execute(_THREAD, key).fetchone():
            self.places.find_and_place(thread[0], since)
        self.connection.execute("DELETE FROM lease WHERE token = ?", (token,))

    def _hold(self, lease: Lease, ticket: int | None) -> None:
        self.leases[lease.token] = lease
        if lease.thread_no:
            self.by_thread[lease.thread_no] = lease
        if ticket is not None:
            self.tickets.discard(ticket)

    def _begun(self, lease: Lease, no: int, last: int) -> None:
        lease.thread_no, lease.begun = no, True
        lease.last = lease.newest = last
        self.by_thread[no] = lease

    def _drop(self, token: int) -> None:
        lease = self.leases.pop(token, None)
        if lease and self.by_thread.get(lease.thread_no) is lease:
            del self.by_thread[lease.thread_no]

    def _claim(self, lease: Lease, claim: KeyClaim) -> None:
        self.connection.execute("DELETE FROM idempotency WHERE used <= ?", (self.now - KEY_AGE,))
        if self.connection.execute("SELECT 1 FROM idempotency WHERE scope = ?", (claim.scope,)).fetchone():
            raise KeyReused
        self.connection.execute(_NEW_KEY, (claim.scope, claim.digest, self.now, *lease.key, lease.run))

    def _new_thread(self, lease: Lease, agent: str) -> int:
        row = (*lease.key, agent, lease.epoch, self.now, self._next_updated(lease.key))
        return self.connection.execute(_NEW_THREAD, row).lastrowid or 0

    def _touch(self, no: int, key: ThreadKey) -> None:
        self.connection.execute("UPDATE thread SET updated = ? WHERE no = ?", (self._next_updated(key), no))

    def _next_updated(self, key: ThreadKey) -> int:
        return self.connection.execute(_NEXT_UPDATED, (self.now, key.tenant, key.owner)).fetchone()[0]

    def _finish(self, lease: Lease) -> None:
        ended = lease.newest or lease.last
        self.connection.execute(
            "UPDATE run SET last = ? WHERE thread_no = ? AND key = ?", (ended, lease.thread_no, lease.run)
        )
        self._touch(lease.thread_no, lease.key)

    def _write_facts(self, key: ThreadKey, epoch: str, no: int, run: str, facts: Sequence[Fact], first: int) -> int:
        for (owner, kind), group in groupby(facts, same_batch):
            lines = [fact.body for fact in group]
            batch = Batch(first=first, owner=owner, kind=kind, run=run, ts=self.now, lines=lines)
            self._insert(key, epoch, no, batch)
            first += len(lines)
        self.insert_rows()
        return first - 1

    def _insert(self, key: ThreadKey, epoch: str, no: int, batch: Batch) -> None:
        body = b"\n".join(batch.lines)
        self._rows.append((no, batch.first, batch.last, batch.run, batch.owner, batch.kind, batch.ts, body))
        self.published.append(Published(key, epoch, batch))
