"""The workers registered in the database, and which of them are alive. A worker is one open ledger; leases and tickets refer to it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambient_runner.ledger.process_identity import Process, has_ended, is_running, this_process
from ambient_runner.ledger.sqlite.row_index import index_remaining

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

_JOIN = "INSERT INTO worker (pid, started, boot, space, lease, expires) VALUES (?, ?, ?, ?, ?, ?)"
_RENEW = """
INSERT INTO worker (id, pid, started, boot, space, lease, expires) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires = excluded.expires
"""
_EXPIRES = "SELECT expires FROM worker WHERE id = ?"
_ALL = "SELECT id, lease, expires, pid, started, boot, space FROM worker"


@dataclass(slots=True)
class Worker:
    """The row of this ledger among the others that use the file."""

    lease: float
    """Seconds a lease lasts without renewal."""
    clock: Callable[[], float]
    process: Process = field(default_factory=this_process)
    id: int = 0
    _grace_until: float = -math.inf
    """Until then an expired lease counts as valid, unless its process has ended: its owner could not renew it."""

    def register(self, connection: sqlite3.Connection) -> None:
        """Register this worker, and remove the leases and tickets of certainly dead ones. Their runs stay: recovery closes those."""
        self.id = (
            connection.execute(_JOIN, (*self._identity_columns(), self.lease, self.clock() + self.lease)).lastrowid or 0
        )
        for worker, process in _other_workers(connection, self.id):
            if has_ended(process, self.process):
                _remove_worker(connection, worker)

    def renew_leases(self, connection: sqlite3.Connection) -> None:
        connection.execute(_RENEW, (self.id, *self._identity_columns(), self.lease, self.clock() + self.lease))

    def renew_leases_if_due(self, connection: sqlite3.Connection) -> None:
        """Renew the leases unless a third of their time is not over: else each new lease would write a page more."""
        row = connection.execute(_EXPIRES, (self.id,)).fetchone()
        left = row[0] - self.clock() if row else 0.0
        if not self.lease * 2 / 3 < left <= self.lease:
            self.renew_leases(connection)

    def unregister(self, connection: sqlite3.Connection) -> None:
        _remove_worker(connection, self.id)

    def suspend_expiry(self) -> None:
        """Let no lease expire: the store cannot be written, so its owner cannot renew it. Lasts until `resume_expiry`."""
        self._grace_until = math.inf

    def resume_expiry(self) -> None:
        """The store can be written again: let leases expire, once their owners have had the time of a lease to renew them."""
        self._grace_until = self.clock() + self.lease

    def live_workers(self, connection: sqlite3.Connection) -> set[int]:
        """Return the workers whose leases are valid: not expired, and not known to be dead. This one always is."""
        now = self.clock()
        has_grace = now < self._grace_until
        live = {self.id}
        for worker, lease, expires, *rest in connection.execute(_ALL).fetchall():
            if worker == self.id:
                continue  # Known to be alive: looking its process up would read a file, with every lease.
            # An expiry further ahead than a whole lease was set on another clock.
            if (has_grace or now <= expires <= now + lease) and not has_ended(Process(*rest), self.process):
                live.add(worker)
        return live

    def _identity_columns(self) -> tuple[int, str, str, str]:
        return self.process.pid, self.process.started, self.process.boot, self.process.pid_namespace


def list_live_processes(connection: sqlite3.Connection) -> list[Process]:
    """Return the processes that use the file. One that cannot be looked up counts while its lease is valid."""
    me, now = this_process(), time.monotonic()
    found: dict[Process, None] = {}
    for _, lease, expires, *rest in connection.execute(_ALL).fetchall():
        process = Process(*rest)
        if is_running(process, me) or (not has_ended(process, me) and now <= expires <= now + lease):
            found[process] = None
    return list(found)


def _remove_worker(connection: sqlite3.Connection, worker: int) -> None:
    index_remaining(connection, worker)
    for table, column in (("lease", "worker"), ("ticket", "worker"), ("reader", "worker"), ("worker", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (worker,))  # noqa: S608  names above


def _other_workers(connection: sqlite3.Connection, me: int) -> list[tuple[int, Process]]:
    rows = connection.execute(_ALL).fetchall()
    return [(worker, Process(*rest)) for worker, _, _, *rest in rows if worker != me]
