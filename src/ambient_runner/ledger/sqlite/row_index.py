"""Where the entries of a thread are: an index over `batch`, written in spans instead of with every row. The schema says why.

`Places` is the committing thread's side: it remembers the rows it has added and not placed yet, and places the ripe ones, a few with
each commit. What it cannot know, because a transaction was rolled back or another process wrote to the same thread, it looks up.
The queries here are for everyone who reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from typing import Any

SPAN = 32
"""Rows that make a span worth placing."""
AGE = 1.0
"""Seconds after which a span is placed whatever its length, so that nobody has to look through much of what others wrote meanwhile."""
_MOST = 4
"""Spans placed with one commit: many runs that began together become ripe together."""

_PLACE = "INSERT INTO place (thread_no, first, last, upto, rows) VALUES (?, ?, ?, ?, ?)"
# Nested in this order, the rows come in the order of their entries and need no sorting.
_PLACED = """
SELECT {columns} FROM place p CROSS JOIN json_each(p.rows) j CROSS JOIN batch b ON b.no = j.value AND b.thread_no = p.thread_no
WHERE p.thread_no = :no AND p.first <= :until
AND p.first >= coalesce((SELECT max(first) FROM place WHERE thread_no = :no AND first <= :first), 0)
AND b.last >= :first AND b.first <= :until
ORDER BY p.first
"""
_LOOSE = """
SELECT {columns} FROM batch b WHERE b.no > :horizon AND b.thread_no = :no AND b.last >= :first AND b.first <= :until ORDER BY b.no
"""
_LAST_PLACE = "SELECT last, upto FROM place WHERE thread_no = ? ORDER BY first DESC LIMIT 1"
_SINCE = """
SELECT l.since FROM lease l JOIN thread t ON t.tenant = l.tenant AND t.owner = l.owner AND t.id = l.id WHERE t.no = ?
"""
# All loose rows of a thread `t` under its lease `l` come after this one.
HORIZON = "max(l.since, coalesce((SELECT upto FROM place WHERE thread_no = t.no ORDER BY first DESC LIMIT 1), 0))"
# What the leases of a worker have left loose, all threads in one pass.
_LEFT = f"""
SELECT t.no, {HORIZON}
FROM lease l JOIN thread t ON t.tenant = l.tenant AND t.owner = l.owner AND t.id = l.id WHERE l.worker = ?
"""  # noqa: S608  our own text
_AFTER = "SELECT thread_no, first, last, no FROM batch WHERE no > ? AND thread_no IS NOT NULL ORDER BY no"
_FRESH = "SELECT thread_no, max(last) FROM batch WHERE no > ? AND thread_no IS NOT NULL GROUP BY thread_no"
ALL = (1 << 62) - 1
"""A seq beyond every thread's end."""


def rows(
    connection: sqlite3.Connection, no: int, columns: str, first: int = 1, until: int = ALL
) -> Iterator[tuple[Any, ...]]:
    """Some columns (of `b`) of the thread's batches that hold entries from `first` to `until`, in order."""
    span = {"no": no, "first": first, "until": until}
    yield from connection.execute(_PLACED.format(columns=columns), span)
    since = connection.execute(_SINCE, (no,)).fetchone()
    if since:
        yield from loose_rows(connection, no, columns, since[0], first, until)


def loose_rows(
    connection: sqlite3.Connection, no: int, columns: str, since: int, first: int = 1, until: int = ALL
) -> Iterator[tuple[Any, ...]]:
    """The same of the rows that are not placed, for a thread whose lease was taken after row `since`."""
    _, upto = last_place(connection, no)
    yield from connection.execute(
        _LOOSE.format(columns=columns), {"horizon": max(since, upto), "no": no, "first": first, "until": until}
    )


def last_place(connection: sqlite3.Connection, no: int) -> tuple[int, int]:
    """The newest placed entry of the thread and its row; zeros when there is none."""
    return connection.execute(_LAST_PLACE, (no,)).fetchone() or (0, 0)


def newest_since(connection: sqlite3.Connection, row: int) -> dict[int, int]:
    """The newest entry of every thread that was written to after that row."""
    return dict(connection.execute(_FRESH, (row,)).fetchall())


def place_left(connection: sqlite3.Connection, worker: int) -> None:
    """Place everything that is loose under the leases of a worker, which are about to go."""
    horizons: dict[int, int] = dict(connection.execute(_LEFT, (worker,)).fetchall())
    if not horizons:
        return
    found: dict[int, list[tuple[int, int, int]]] = {}
    for no, first, last, row in connection.execute(_AFTER, (min(horizons.values()),)):
        if row > horizons.get(no, row):
            found.setdefault(no, []).append((first, last, row))
    for no, loose in found.items():
        _insert(connection, no, loose)


def _insert(connection: sqlite3.Connection, no: int, loose: list[tuple[int, int, int]]) -> None:
    """Place rows given as (first, last, row)."""
    listed = msgspec.json.encode([row for _, _, row in loose]).decode()
    connection.execute(_PLACE, (no, loose[0][0], loose[-1][1], loose[-1][2], listed))


@dataclass(slots=True)
class _Span:
    """Loose rows of one thread."""

    since: float
    rows: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """First and last entry of each, and its number."""
    known: bool = True
    """Whether `rows` are all of them."""


class Places:
    """The spans this process is still adding to, by thread; the oldest first."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._spans: dict[int, _Span] = {}
        self._ripe: dict[int, None] = {}

    def added(self, no: int, first: int, last: int, row: int) -> None:
        """This transaction wrote a row for a thread with a lease."""
        span = self._spans.get(no)
        if span is None:
            span = self._spans[no] = _Span(time.monotonic())
        span.rows.append((first, last, row))
        if len(span.rows) >= SPAN:
            self._ripe[no] = None

    def doubt(self, threads: Iterable[int]) -> None:
        """What is remembered of these may not be all: look before placing."""
        for no in threads:
            self._spans.setdefault(no, _Span(time.monotonic())).known = False

    def start_anew(self, threads: Iterable[int]) -> None:
        """A transaction was rolled back: of these threads, the ones with a lease, nothing is known any more."""
        self._spans.clear()
        self._ripe.clear()
        self.doubt(threads)

    def forget(self, no: int) -> None:
        self._spans.pop(no, None)
        self._ripe.pop(no, None)

    def place_ripe(self) -> None:
        old = time.monotonic() - AGE
        ripe = [
            *islice(self._ripe, _MOST),
            *(no for no, span in islice(self._spans.items(), _MOST) if span.since < old),
        ]
        for no in ripe[:_MOST]:
            self.place(no)

    def place(self, no: int) -> None:
        """Place all loose rows of a thread that has a lease."""
        span = self._spans.get(no)
        self.forget(no)
        if span is None:
            return
        if span.known:
            _insert(self._connection, no, span.rows)
        elif since := self._connection.execute(_SINCE, (no,)).fetchone():
            self.find_and_place(no, since[0])

    def find_and_place(self, no: int, since: int) -> None:
        """Place loose rows that another process wrote under a lease taken after row `since`, or nobody remembers."""
        if loose := list(loose_rows(self._connection, no, "b.first, b.last, b.no", since)):
            _insert(self._connection, no, loose)
