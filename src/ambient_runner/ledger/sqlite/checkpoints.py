"""The stored checkpoints of threads: the newest one, in parts, and the one in place of dropped entries.

Plain functions inside a transaction, like `queries.py` and `commands.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.records import Checkpoint, CheckpointPart
from ambient_runner.ledger.sqlite.row_index import MAX_SEQ

if TYPE_CHECKING:
    import sqlite3

    from ambient_runner.ledger.records import CheckpointUpdate, ThreadKey

__all__ = ["blank_checkpoint_parts", "find_checkpoint", "list_checkpoint_parts", "store_checkpoint"]

_THREAD_NO = "SELECT no, epoch FROM thread WHERE tenant = ? AND owner = ? AND id = ?"
_RETAINED = "SELECT seq, body FROM checkpoint WHERE thread_no = ? AND seq <= ?"
_HEAD = "SELECT seq, body FROM checkpoint_part WHERE thread_no = ? AND is_head = 1 AND seq <= ?"
_PARTS = "SELECT seq, body FROM checkpoint_part WHERE thread_no = ? AND is_head = 0 ORDER BY seq"
_PART_SEQS = "SELECT seq FROM checkpoint_part WHERE thread_no = ? AND is_head = 0 ORDER BY seq"
_INSERT = "INSERT INTO checkpoint_part (thread_no, seq, is_head, body) VALUES (?, ?, ?, ?)"
# Those after the ones that are kept, and the head. As every row with content, they are blanked and not deleted; see the schema.
_BLANK = """
UPDATE checkpoint_part SET thread_no = NULL, body = x'' WHERE thread_no = ? AND (is_head = 1 OR seq > ?)
"""


def find_checkpoint(connection: sqlite3.Connection, key: ThreadKey, at: int | None, epoch: str) -> Checkpoint | None:
    """Return the newest checkpoint at or before `at`, of the thread with that epoch (of any if it is empty)."""
    found = connection.execute(_THREAD_NO, key).fetchone()
    if found is None or epoch not in ("", found[1]):
        return None
    span = (found[0], MAX_SEQ if at is None else min(at, MAX_SEQ))
    retained = connection.execute(_RETAINED, span).fetchone()
    head = connection.execute(_HEAD, span).fetchone()
    if head is not None and (retained is None or retained[0] < head[0]):
        parts = [CheckpointPart(seq, body) for seq, body in connection.execute(_PARTS, (found[0],))]
        return Checkpoint(seq=head[0], body=head[1], parts=tuple(parts))
    return Checkpoint(seq=retained[0], body=retained[1]) if retained else None


def list_checkpoint_parts(connection: sqlite3.Connection, key: ThreadKey) -> list[int]:
    found = connection.execute(_THREAD_NO, key).fetchone()
    return [seq for (seq,) in connection.execute(_PART_SEQS, (found[0],))] if found else []


def store_checkpoint(connection: sqlite3.Connection, no: int, checkpoint: CheckpointUpdate) -> None:
    """Store the newest checkpoint of a thread. It is left out if it needs parts that are not there: folds then start at an earlier one."""
    stored = [seq for (seq,) in connection.execute(_PART_SEQS, (no,))]
    kept = checkpoint.kept_parts
    if stored[: len(kept)] != list(kept):
        return
    connection.execute(_BLANK, (no, kept[-1] if kept else -1))
    if checkpoint.new_part:
        connection.execute(_INSERT, (no, checkpoint.seq, 0, checkpoint.new_part))
    connection.execute(_INSERT, (no, checkpoint.seq, 1, checkpoint.body))


def blank_checkpoint_parts(connection: sqlite3.Connection, no: int) -> None:
    """Blank the newest checkpoint of a thread."""
    connection.execute(_BLANK, (no, -1))
