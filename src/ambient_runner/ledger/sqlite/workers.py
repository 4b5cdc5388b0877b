"""The workers registered in the database, and which of them are alive. A worker is one open ledger; leases and tickets refer to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambient_runner.ledger.process_identity import Process, has_ended, this_process
from ambient_runner.ledger.sqlite.row_index import index_remaining

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

_JOIN = "INSERT INTO worker (pid, started, boot, space, lease, expires) VALUES (?, ?, ?, ?, ?, ?)"
_RENEW = """
INSERT INTO worker (id, pid, started, boot, space, lease, expires) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires = excluded.expires
"""
_ALL = "SELECT id, lease, expires, pid, started, boot, space FROM worker"


@dataclass(slots=True)
class Worker:
    """The row of this ledger among the others that use the file."""

    lease: float
    """Seconds a lease lasts without renewal."""
    clock: Callable[[], float]
    process: Process = field(default_factory=this_process)
    id: int = 0

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

    def unregister(self, connection: sqlite3.Connection) -> None:
        _remove_worker(connection, self.id)

    def live_workers(self, connection: sqlite3.Connection) -> set[int]:
        """Return the workers whose leases are valid: not expired, and not known to be dead. This one always is."""
        now = self.clock()
        live = {self.id}
        for worker, lease, expires, *rest in connection.execute(_ALL).fetchall():
            # An expiry further ahead than a whole lease was set on another clock.
            if now <= expires <= now + lease and not has_ended(Process(*rest), self.process):
                live.add(worker)
        return live

    def _identity_columns(self) -> tuple[int, str, str, str]:
        return self.process.pid, self.process.started, self.process.boot, self.process.space


def _remove_worker(connection: sqlite3.Connection, worker: int) -> None:
    index_remaining(connection, worker)
    for table, column in (("lease", "worker"), ("ticket", "worker"), ("worker", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (worker,))  # noqa: S608  names above


def _other_workers(connection: sqlite3.Connection, me: int) -> list[tuple[int, Process]]:
    rows = connection.execute(_ALL).fetchall()
    return [(worker, Process(*rest)) for worker, _, _, *rest in rows if worker != me]
