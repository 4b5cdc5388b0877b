"""A deferred index over the rows of `batch` (table `place`): written in spans instead of with every row. The schema explains why.

`RowIndex` is used by the commit thread: it remembers the rows it has added and not indexed yet, and indexes full or old spans, a few with
each commit. What it cannot know, because a transaction was rolled back or another process wrote to the same thread, it queries.
The functions here are for all readers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Any

SPAN_ROWS = 32
"""Rows that make a span full."""
MAX_SPAN_AGE = 1.0
"""Seconds after which a span is indexed whatever its length, so that readers need not scan many rows of other threads."""
_ROWS_PER_INDEXED_SPAN = 16
"""A commit indexes at most one span for so many rows that it added: spans of runs that began together become due together."""
_MIN_SPAN_LIMIT = 4
"""A commit of few rows indexes at most so many."""

_INSERT_SPANS = "INSERT INTO place (thread_no, first, last, upto, rows) VALUES "
# Nested in this order, the rows come in the order of their entries and need no sorting.
_INDEXED_ROWS = """
SELECT {columns} FROM place p CROSS JOIN json_each(p.rows) j CROSS JOIN batch b ON b.no = j.value AND b.thread_no = p.thread_no
WHERE p.thread_no = :no AND p.first <= :until
AND p.first >= coalesce((SELECT max(first) FROM place WHERE thread_no = :no AND first <= :first), 0)
AND b.last >= :first AND b.first <= :until
ORDER BY p.first
"""
_UNINDEXED_ROWS = """
SELECT {columns} FROM batch b WHERE b.no > :horizon AND b.thread_no = :no AND b.last >= :first AND b.first <= :until ORDER BY b.no
"""
_LAST_SPAN = "SELECT last, upto FROM place WHERE thread_no = ? ORDER BY first DESC LIMIT 1"
_SINCE = """
SELECT l.since FROM lease l JOIN thread t ON t.tenant = l.tenant AND t.owner = l.owner AND t.id = l.id WHERE t.no = ?
"""
# All unindexed rows of a thread `t` under its lease `l` come after this one.
HORIZON = "max(l.since, coalesce((SELECT upto FROM place WHERE thread_no = t.no ORDER BY first DESC LIMIT 1), 0))"
# The unindexed rows of all threads that a worker holds leases of.
_REMAINING = f"""
SELECT t.no, {HORIZON}
FROM lease l JOIN thread t ON t.tenant = l.tenant AND t.owner = l.owner AND t.id = l.id WHERE l.worker = ?
"""  # noqa: S608  our own text
_ROWS_AFTER = "SELECT thread_no, first, last, no FROM batch WHERE no > ? AND thread_no IS NOT NULL ORDER BY no"
_NEWEST_BY_THREAD = "SELECT thread_no, max(last) FROM batch WHERE no > ? AND thread_no IS NOT NULL GROUP BY thread_no"
MAX_SEQ = (1 << 62) - 1
"""A seq beyond the end of every thread."""


def batch_rows(
    connection: sqlite3.Connection, no: int, columns: str, first: int = 1, until: int = MAX_SEQ
) -> Generator[tuple[Any, ...]]:
    """Yield columns (of `b`) of the thread's batches with entries from `first` to `until`, in order."""
    span = {"no": no, "first": first, "until": until}
    yield from connection.execute(_INDEXED_ROWS.format(columns=columns), span)
    since = connection.execute(_SINCE, (no,)).fetchone()
    if since:
        yield from unindexed_rows(connection, no, columns, since[0], first, until)


def unindexed_rows(
    connection: sqlite3.Connection, no: int, columns: str, since: int, first: int = 1, until: int = MAX_SEQ
) -> Iterator[tuple[Any, ...]]:
    """Yield columns (of `b`) of the thread's unindexed rows with these entries. Its lease was acquired after row `since`."""
    _, upto = last_indexed(connection, no)
    yield from connection.execute(
        _UNINDEXED_ROWS.format(columns=columns), {"horizon": max(since, upto), "no": no, "first": first, "until": until}
    )


def last_indexed(connection: sqlite3.Connection, no: int) -> tuple[int, int]:
    """Return the newest indexed entry of the thread and its row; zeros if there is none."""
    return connection.execute(_LAST_SPAN, (no,)).fetchone() or (0, 0)


def newest_since(connection: sqlite3.Connection, row: int) -> dict[int, int]:
    """Return the newest entry of every thread that was written to after that row."""
    return dict(connection.execute(_NEWEST_BY_THREAD, (row,)).fetchall())


def index_remaining(connection: sqlite3.Connection, worker: int) -> None:
    """Index all unindexed rows under the leases of a worker, which are about to be deleted."""
    horizons: dict[int, int] = dict(connection.execute(_REMAINING, (worker,)).fetchall())
    if not horizons:
        return
    found: dict[int, list[tuple[int, int, int]]] = {}
    for no, first, last, row in connection.execute(_ROWS_AFTER, (min(horizons.values()),)):
        if row > horizons.get(no, row):
            found.setdefault(no, []).append((first, last, row))
    for no, unindexed in found.items():  # One by one: there may be more threads than a statement has parameters.
        _insert_spans(connection, {no: unindexed})


def _insert_spans(connection: sqlite3.Connection, spans: Mapping[int, Sequence[tuple[int, int, int]]]) -> None:
    """Index rows of the form (first, last, row) as one span for each thread, in one statement: each call releases the GIL."""
    values: list[int | str] = []
    for no, rows in spans.items():
        numbers = msgspec.json.encode([row for _, _, row in rows]).decode()
        values += (no, rows[0][0], rows[-1][1], rows[-1][2], numbers)
    if values:
        connection.execute(_INSERT_SPANS + ", ".join(["(?, ?, ?, ?, ?)"] * len(spans)), values)


@dataclass(slots=True)
class _Span:
    """Unindexed rows of one thread."""

    started_at: float
    rows: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """First and last entry of each row, and its number."""
    is_complete: bool = True
    """True if `rows` are all unindexed rows of the thread."""


class RowIndex:
    """The spans this process still adds rows to, by thread, the oldest first."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._spans: dict[int, _Span] = {}
        self._full_spans: dict[int, None] = {}
        self._added = 0
        """Rows added since the last `index_due_spans`, rolled-back ones included."""

    def add_row(self, no: int, first: int, last: int, row: int) -> None:
        """Add a row that this transaction inserted for a thread with a lease."""
        span = self._spans.get(no)
        if span is None:
            span = self._spans[no] = _Span(time.monotonic())
        span.rows.append((first, last, row))
        self._added += 1
        if len(span.rows) >= SPAN_ROWS:
            self._full_spans[no] = None

    def invalidate(self, threads: Iterable[int]) -> None:
        """Mark the spans of these threads as possibly incomplete: query the rows before indexing them."""
        for no in threads:
            self._spans.setdefault(no, _Span(time.monotonic())).is_complete = False

    def reset_after_rollback(self, threads: Iterable[int]) -> None:
        """Discard all spans after a rollback. `threads` are those with a lease: their rows must be queried."""
        self._spans.clear()
        self._full_spans.clear()
        self.invalidate(threads)

    def evict_thread(self, no: int) -> None:
        self._spans.pop(no, None)
        self._full_spans.pop(no, None)

    def index_due_spans(self) -> None:
        """Index some of the spans that are full or old."""
        started_before = time.monotonic() - MAX_SPAN_AGE
        limit = max(_MIN_SPAN_LIMIT, self._added // _ROWS_PER_INDEXED_SPAN)
        self._added = 0
        due = {
            **dict.fromkeys(islice(self._full_spans, limit)),
            **{no: None for no, span in islice(self._spans.items(), limit) if span.started_at < started_before},
        }
        self._index_threads(islice(due, limit))

    def index_thread(self, no: int) -> None:
        """Index all unindexed rows of a thread that has a lease."""
        self._index_threads((no,))

    def _index_threads(self, threads: Iterable[int]) -> None:
        complete: dict[int, list[tuple[int, int, int]]] = {}
        for no in threads:
            span = self._spans.get(no)
            self.evict_thread(no)
            if span is None:
                continue
            if span.is_complete:
                complete[no] = span.rows
            elif since := self._connection.execute(_SINCE, (no,)).fetchone():
                self.find_and_index(no, since[0])
        _insert_spans(self._connection, complete)

    def find_and_index(self, no: int, since: int) -> None:
        """Query and index rows written under a lease acquired after row `since`, by another process or before a rollback."""
        if rows := list(unindexed_rows(self._connection, no, "b.first, b.last, b.no", since)):
            _insert_spans(self._connection, {no: rows})
