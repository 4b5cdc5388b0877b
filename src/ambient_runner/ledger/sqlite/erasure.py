"""Erasure of entries: those covered by a checkpoint, or a whole thread. Runs inside a write transaction, like `commands.py`.

Rows are first blanked in place, so that no byte of their content stays in the file; blank rows are deleted later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.records import IDEMPOTENCY_KEY_TTL_MS
from ambient_runner.ledger.sqlite import checkpoints, row_index, thread_row

if TYPE_CHECKING:
    import sqlite3

    from ambient_runner.ledger.records import Checkpoint, ThreadKey

__all__ = ["erase_thread", "trim_thread"]

_NEWEST_CHECKPOINT = "SELECT max(seq) FROM checkpoint_part WHERE thread_no = ? AND is_head = 1"
_CHECKPOINT = "INSERT INTO checkpoint (thread_no, seq, body) VALUES (?, ?, ?)"
# Blanking makes a row shorter and leaves it where it is; see the schema for why nothing is deleted here.
_BLANK_BATCH = "UPDATE batch SET thread_no = NULL, run = '', owner = '', kind = '', body = x'' WHERE no = ?"
_BLANK_CHECKPOINT = "UPDATE checkpoint SET thread_no = NULL, body = x'' WHERE thread_no = ?"
_BLANK_RUNS = "UPDATE run SET thread_no = NULL, key = '', run_id = '', first = 0, last = 0 WHERE thread_no = ?"
# At least a thousand blank rows stay before the first live one: more pages than SQLite touches to merge one.
_SWEEP = """
DELETE FROM {table} WHERE no < min(
    (SELECT min(no) FROM {table}) + 5000,
    coalesce((SELECT no FROM {table} WHERE thread_no IS NOT NULL ORDER BY no LIMIT 1), (SELECT max(no) FROM {table})) - 1000
)
"""
_TOMBSTONE = "INSERT INTO erased (tenant, owner, id, epoch, at, changed) VALUES (?, ?, ?, ?, ?, ?)"
_RECORD_DROPPED = """
UPDATE change_counter SET dropped = max(dropped, coalesce((SELECT max(changed) FROM erased WHERE at < ?), 0))
"""


def trim_thread(connection: sqlite3.Connection, no: int, checkpoint: Checkpoint) -> None:
    """Replace all entries of the thread up to the checkpoint by it, unless a later one already has."""
    if checkpoint.seq <= connection.execute("SELECT floor FROM thread WHERE no = ?", (no,)).fetchone()[0]:
        return
    connection.execute(_BLANK_CHECKPOINT, (no,))
    connection.execute(_CHECKPOINT, (no, checkpoint.seq, checkpoint.body))
    newest = connection.execute(_NEWEST_CHECKPOINT, (no,)).fetchone()[0]
    if newest is not None and newest <= checkpoint.seq:
        checkpoints.blank_checkpoint_parts(connection, no)  # The entries after it are gone.
    _drop_entries(connection, no, checkpoint.seq)
    _delete_blank_rows(connection)
    connection.execute("UPDATE thread SET floor = ? WHERE no = ?", (checkpoint.seq, no))


def erase_thread(connection: sqlite3.Connection, key: ThreadKey, no: int, epoch: str, now: int) -> None:
    """Erase the thread and leave a tombstone without content."""
    _blank_batches(connection, no, row_index.MAX_SEQ)
    connection.execute("DELETE FROM place WHERE thread_no = ?", (no,))
    connection.execute(_BLANK_CHECKPOINT, (no,))
    checkpoints.blank_checkpoint_parts(connection, no)
    connection.execute(_BLANK_RUNS, (no,))
    thread_row.blank_title(connection, no)
    _delete_blank_rows(connection)
    connection.execute("DELETE FROM thread WHERE no = ?", (no,))
    connection.execute("DELETE FROM lease WHERE tenant = ? AND owner = ? AND id = ?", key)
    connection.execute("DELETE FROM reader WHERE tenant = ? AND owner = ? AND id = ?", key)
    connection.execute("UPDATE idempotency SET run = '' WHERE tenant = ? AND owner = ? AND id = ?", key)
    _drop_tombstones(connection, now - IDEMPOTENCY_KEY_TTL_MS)
    connection.execute(_TOMBSTONE, (*key, epoch, now, thread_row.next_position(connection, now)))


def _drop_tombstones(connection: sqlite3.Connection, oldest: int) -> None:
    """Delete tombstones from before that time, and record up to which position some may be missing."""
    connection.execute(_RECORD_DROPPED, (oldest,))
    connection.execute("DELETE FROM erased WHERE at < ?", (oldest,))


def _drop_entries(connection: sqlite3.Connection, no: int, seq: int) -> None:
    """Blank the batches up to `seq`, and truncate the one that extends beyond it."""
    for row, first, body in list(row_index.batch_rows(connection, no, "b.no, b.first, b.body", seq + 1, seq + 1)):
        if first <= seq:
            rest = body.split(b"\n")[seq - first + 1 :]
            connection.execute("UPDATE batch SET first = ?, body = ? WHERE no = ?", (seq + 1, b"\n".join(rest), row))
    _blank_batches(connection, no, seq)
    connection.execute("DELETE FROM place WHERE thread_no = ? AND last <= ?", (no, seq))


def _blank_batches(connection: sqlite3.Connection, no: int, seq: int) -> None:
    found = list(row_index.batch_rows(connection, no, "b.no, b.last", 1, seq))
    connection.executemany(_BLANK_BATCH, [(row,) for row, last in found if last <= seq])


def _delete_blank_rows(connection: sqlite3.Connection) -> None:
    """Delete blank rows from the beginning of the tables, some at a time, well away from the pages of live rows."""
    for table in ("batch", "checkpoint", "checkpoint_part", "run", "label"):
        connection.execute(_SWEEP.format(table=table))
