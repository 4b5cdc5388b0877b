"""Changes that other processes committed. The commit thread polls `PRAGMA data_version` for them and passes them to the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambient_runner.ledger.commit_jobs import ExternalChanges
from ambient_runner.ledger.records import ThreadKey

if TYPE_CHECKING:
    import sqlite3

_GROWN = """
SELECT t.no, t.tenant, t.owner, t.id, t.epoch, max(b.last), max(b.no) FROM batch b JOIN thread t ON t.no = b.thread_no
WHERE b.no > ? GROUP BY b.thread_no
"""
_ERASED = "SELECT no, tenant, owner, id, epoch FROM erased WHERE no > ?"
_MINE = "SELECT token, stop FROM lease WHERE worker = ?"
_NEWEST_ID = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0)"


@dataclass(slots=True)
class SqliteChanges(ExternalChanges):
    """Changes of other processes, also by the thread's row number."""

    newest_by_thread: dict[int, int] = field(default_factory=dict[int, int])
    """The newest seq of the threads with new entries."""


class ChangePoller:
    """Reads the changes since the last call, and remembers how far it has read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = 0
        self._seen_version = 0
        self._batch = self._newest_id("batch")
        self._erased = self._newest_id("erased")

    def has_changed(self) -> bool:
        """Return True if another connection committed since `read_changes`. Own commits do not count."""
        self._seen_version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return self._seen_version != self._version

    def skip_own_rows(self, batch: int) -> None:
        """Skip rows up to that id: this connection inserted them, after reading all before them."""
        self._batch = max(self._batch, batch)

    def read_changes(self, worker: int) -> SqliteChanges:
        changes = SqliteChanges()
        for no, tenant, owner, thread_id, epoch in self._connection.execute(_ERASED, (self._erased,)).fetchall():
            changes.erased.append((ThreadKey(tenant, owner, thread_id), epoch))
            self._erased = no
        for no, tenant, owner, thread_id, epoch, last, newest in self._connection.execute(
            _GROWN, (self._batch,)
        ).fetchall():
            changes.newest_by_thread[no] = last
            changes.grown.append((ThreadKey(tenant, owner, thread_id), epoch, last))
            self._batch = max(self._batch, newest)
        for token, stop in self._connection.execute(_MINE, (worker,)).fetchall():
            changes.held_leases.add(token)
            if stop is not None:
                changes.stops.append((token, stop))
        self._version = self._seen_version  # Only now: what a failing disk kept from being read is read the next time.
        return changes

    def _newest_id(self, table: str) -> int:
        return self._connection.execute(_NEWEST_ID, (table,)).fetchone()[0]
