"""Writes to a thread's row, its title, and the order of changes. Runs inside a write transaction, like `commands.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.thread_changes import POSITIONS_PER_MS
from ambient_runner.ledger.thread_search import searched_text

if TYPE_CHECKING:
    import sqlite3

    from ambient_runner.ledger.records import ThreadKey, ThreadLabels, ThreadStatus

__all__ = ["STATUSES", "blank_title", "has_title", "insert_thread", "next_position", "touch_thread"]

STATUSES: tuple[ThreadStatus, ...] = ("running", "waiting", "finished", "failed", "stopped")
"""The statuses by their number in `thread.status`. New ones go to the end."""

_NEXT_POSITION = "UPDATE change_counter SET newest = max(?, newest + 1) RETURNING newest"
_NEW_THREAD = """
INSERT INTO thread (tenant, owner, id, agent, epoch, created, updated, changed, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TOUCH = """
UPDATE thread SET updated = ?, changed = ?, status = coalesce(?, status), archived = coalesce(?, archived) WHERE no = ?
"""
_TITLE = "SELECT b.title FROM thread t JOIN label b ON b.no = t.label WHERE t.no = ?"
_BLANK_TITLE = """
UPDATE label SET thread_no = NULL, title = '', searched = '' WHERE no = (SELECT label FROM thread WHERE no = ?)
"""
_NEW_TITLE = "INSERT INTO label (thread_no, title, searched) VALUES (?, ?, ?)"
_USE_TITLE = "UPDATE thread SET label = ? WHERE no = ?"


def next_position(connection: sqlite3.Connection, now: int) -> int:
    """Return the position of a change at `now`, in ms since 1970. No other change gets the same one, or an earlier one later."""
    return connection.execute(_NEXT_POSITION, (now * POSITIONS_PER_MS,)).fetchone()[0]


def insert_thread(connection: sqlite3.Connection, key: ThreadKey, agent: str, epoch: str, title: str, now: int) -> int:
    """Insert the row of a thread whose first run begins. Return its number."""
    position = next_position(connection, now)
    row = (*key, agent, epoch, now, now, position, STATUSES.index("running"))
    no = connection.execute(_NEW_THREAD, row).lastrowid or 0
    _add_title(connection, no, key, title)
    return no


def touch_thread(
    connection: sqlite3.Connection, no: int, key: ThreadKey, now: int, labels: ThreadLabels | None = None
) -> None:
    """Record a change of the thread, with its new labels if there are any."""
    status = STATUSES.index(labels.status) if labels and labels.status else None
    archived = labels.archived if labels else None
    connection.execute(_TOUCH, (now, next_position(connection, now), status, archived, no))
    if labels and labels.title is not None:
        # A title is not updated: see the schema. The old row is blanked and a new one added.
        blank_title(connection, no)
        _add_title(connection, no, key, labels.title)


def has_title(connection: sqlite3.Connection, no: int) -> bool:
    return bool(connection.execute(_TITLE, (no,)).fetchone()[0])


def blank_title(connection: sqlite3.Connection, no: int) -> None:
    connection.execute(_BLANK_TITLE, (no,))


def _add_title(connection: sqlite3.Connection, no: int, key: ThreadKey, title: str) -> None:
    row = (no, title, searched_text(title, key.id))
    connection.execute(_USE_TITLE, (connection.execute(_NEW_TITLE, row).lastrowid, no))
