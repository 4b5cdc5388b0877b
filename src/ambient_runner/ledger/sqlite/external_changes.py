"""What other processes did to the file: read by the committing thread when `PRAGMA data_version` moved, told to the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambient_runner.ledger.base import ThreadKey

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
class News:
    grown: list[tuple[ThreadKey, str, int]] = field(default_factory=list[tuple[ThreadKey, str, int]])
    """Threads with new entries: which life, and the newest seq."""
    threads: dict[int, int] = field(default_factory=dict[int, int])
    """The same by the thread's number."""
    erased: list[tuple[ThreadKey, str]] = field(default_factory=list[tuple[ThreadKey, str]])
    stops: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Leases of this process that were asked to stop, by token, and why."""
    mine: set[int] = field(default_factory=set[int])
    """The leases this process still has."""


class Reporter:
    """Remembers how far it has read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = 0
        self._batch = self._newest("batch")
        self._erased = self._newest("erased")

    def changed(self) -> bool:
        """Whether another connection committed since this was last asked. Own commits do not count."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        changed = version != self._version
        self._version = version
        return changed

    def wrote(self, batch: int) -> None:
        """This connection added rows up to that id, after having read all before them."""
        self._batch = max(self._batch, batch)

    def read(self, worker: int) -> News:
        news = News()
        for no, tenant, owner, thread_id, epoch in self._connection.execute(_ERASED, (self._erased,)).fetchall():
            news.erased.append((ThreadKey(tenant, owner, thread_id), epoch))
            self._erased = no
        for no, tenant, owner, thread_id, epoch, last, newest in self._connection.execute(
            _GROWN, (self._batch,)
        ).fetchall():
            news.threads[no] = last
            news.grown.append((ThreadKey(tenant, owner, thread_id), epoch, last))
            self._batch = max(self._batch, newest)
        for token, stop in self._connection.execute(_MINE, (worker,)).fetchall():
            news.mine.add(token)
            if stop is not None:
                news.stops.append((token, stop))
        return news

    def _newest(self, table: str) -> int:
        return self._connection.execute(_NEWEST_ID, (table,)).fetchone()[0]
