"""Which processes are alive, as the database tells it. A worker is one open ledger; leases and tickets name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambient_runner.ledger.process_identity import Process, is_gone, this_process
from ambient_runner.ledger.sqlite.row_index import place_left

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
    """This ledger among the others that use the file."""

    lease: float
    """Seconds a lease lasts without renewal."""
    clock: Callable[[], float]
    process: Process = field(default_factory=this_process)
    id: int = 0

    def join(self, connection: sqlite3.Connection) -> None:
        """Sign in, and clear away what certainly dead workers left. Their runs stay: recovery closes those."""
        self.id = connection.execute(_JOIN, (*self._identity(), self.lease, self.clock() + self.lease)).lastrowid or 0
        for worker, process in _others(connection, self.id):
            if is_gone(process, self.process):
                _sign_out(connection, worker)

    def renew(self, connection: sqlite3.Connection) -> None:
        connection.execute(_RENEW, (self.id, *self._identity(), self.lease, self.clock() + self.lease))

    def leave(self, connection: sqlite3.Connection) -> None:
        _sign_out(connection, self.id)

    def living(self, connection: sqlite3.Connection) -> set[int]:
        """The workers whose leases count: within their time, and not known to be dead. This one always does."""
        now = self.clock()
        living = {self.id}
        for worker, lease, expires, *rest in connection.execute(_ALL).fetchall():
            # A time further ahead than a whole lease was set on another clock.
            if now <= expires <= now + lease and not is_gone(Process(*rest), self.process):
                living.add(worker)
        return living

    def _identity(self) -> tuple[int, str, str, str]:
        return self.process.pid, self.process.started, self.process.boot, self.process.space


def _sign_out(connection: sqlite3.Connection, worker: int) -> None:
    place_left(connection, worker)
    for table, column in (("lease", "worker"), ("ticket", "worker"), ("worker", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (worker,))  # noqa: S608  names above


def _others(connection: sqlite3.Connection, me: int) -> list[tuple[int, Process]]:
    rows = connection.execute(_ALL).fetchall()
    return [(worker, Process(*rest)) for worker, _, _, *rest in rows if worker != me]
