"""Read-only queries; those for threads are in `thread_queries.py`. Plain functions over a connection; each runs in one read transaction.

They are short on purpose: an open read transaction keeps the WAL from being truncated, and erasure waits for that.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ambient_runner.errors import UnknownThread
from ambient_runner.ledger.batches import slice_batch, take_batches
from ambient_runner.ledger.records import (
    IDEMPOTENCY_KEY_TTL_MS,
    Batch,
    IdempotencyRecord,
    RunInfo,
    ThreadKey,
)
from ambient_runner.ledger.sqlite import row_index
from ambient_runner.ledger.sqlite.row_index import MAX_SEQ
from ambient_runner.ledger.thread_damage import report_thread_damage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from ambient_runner.ledger.records import IdempotencyClaim
    from ambient_runner.ledger.sqlite.workers import Worker


# Entries are numbered without gaps, so the last span of a thread ends at its newest indexed seq; a trimmed thread continues from its floor.
LAST_INDEXED = "coalesce((SELECT last FROM place WHERE thread_no = t.no ORDER BY first DESC LIMIT 1), t.floor)"
_THREAD = f"""
SELECT t.no, t.epoch, t.floor, {LAST_INDEXED} FROM thread t WHERE t.tenant = ? AND t.owner = ? AND t.id = ?
"""  # noqa: S608  our own text
OPEN_RUN = 1 << 40
"""`run.last` of a run without a terminal entry."""
_RUN = """
SELECT r.key, t.tenant, t.owner, t.id, r.run_id, r.first, r.last FROM run r JOIN thread t ON t.no = r.thread_no
"""
_RUN_BY_KEY = _RUN + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ? AND r.key = ?"
_RUN_AT = _RUN + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ? AND r.first <= ? ORDER BY r.first DESC LIMIT 1"
_NEWEST_RUNS = _RUN + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ? AND r.first < ? ORDER BY r.first DESC LIMIT ?"
_OPEN_RUNS = """
SELECT l.worker, r.key, t.tenant, t.owner, t.id, r.run_id, r.first, r.last
FROM run r JOIN thread t ON t.no = r.thread_no
LEFT JOIN lease l ON l.tenant = t.tenant AND l.owner = t.owner AND l.id = t.id
WHERE r.last = 1099511627776
"""
_BATCH = "b.first, b.last, b.owner, b.kind, b.run, b.ts, b.body"
_KEY = "SELECT digest, owner, id, run FROM idempotency WHERE scope = ? AND tenant = ? AND used > ?"


def find_run(connection: sqlite3.Connection, key: ThreadKey, run: str) -> RunInfo | None:
    return _run_info(connection.execute(_RUN_BY_KEY, (*key, run)).fetchone())


def find_run_at(connection: sqlite3.Connection, key: ThreadKey, seq: int) -> RunInfo | None:
    return _run_info(connection.execute(_RUN_AT, (*key, min(seq, MAX_SEQ))).fetchone())


def list_runs(connection: sqlite3.Connection, key: ThreadKey, limit: int, before: int | None) -> list[RunInfo]:
    rows = connection.execute(_NEWEST_RUNS, (*key, MAX_SEQ if before is None else min(before, MAX_SEQ), limit))
    return [info for row in rows.fetchall() if (info := _run_info(row))]


def list_abandoned_runs(connection: sqlite3.Connection, worker: Worker, limit: int) -> list[RunInfo]:
    rows = connection.execute(_OPEN_RUNS).fetchall()
    live = worker.live_workers(connection) if rows else set[int]()
    found = [info for holder, *row in rows if holder not in live and (info := _run_info(row))]
    return random.sample(found, min(limit, len(found)))


def find_idempotency_record(
    connection: sqlite3.Connection, tenant: str, claim: IdempotencyClaim, now: int
) -> IdempotencyRecord | None:
    row = connection.execute(_KEY, (claim.scope, tenant, now - IDEMPOTENCY_KEY_TTL_MS)).fetchone()
    if row is None:
        return None
    digest, owner, thread_id, run_key = row
    key = ThreadKey(tenant, owner, thread_id)
    return IdempotencyRecord(digest=digest, thread=key, run=find_run(connection, key, run_key))


def read_batches(
    connection: sqlite3.Connection, key: ThreadKey, epoch: str, after: int, until: int | None, limit: int
) -> list[Batch]:
    """Return batches of the thread with that epoch (of any if it is empty).

    They end before an entry that is missing though retention has not dropped it, and before a damaged row; a read that begins there raises.
    Raises: UnknownThread if that thread was erased; ThreadDamaged.
    """
    found = connection.execute(_THREAD, key).fetchone()
    if found is None or (epoch and found[1] != epoch):
        if epoch:
            raise UnknownThread
        return []
    after, last = min(after, MAX_SEQ - 1), MAX_SEQ if until is None else min(until, MAX_SEQ)
    if after >= last:
        return []
    no, _, floor, indexed = found
    first = max(after, floor) + 1
    # Closed here: a traceback would keep the rows, and their statement, for longer than the connection.
    with closing(row_index.batch_rows(connection, no, _BATCH, after + 1, last)) as rows:
        intact = _intact_batches(key, rows, first, limit)
        batches = take_batches((slice_batch(batch, after + 1, last) for batch in intact), limit)
    if not batches and first <= min(last, indexed):
        raise report_thread_damage(key, f"entry {first} is missing")
    return batches


def is_free(connection: sqlite3.Connection, worker: Worker, key: ThreadKey, ticket: int | None) -> bool:
    """Return True if `acquire_lease` with this ticket would succeed now; without one, if no live process holds the lease."""
    live = worker.live_workers(connection)
    row = connection.execute("SELECT worker FROM lease WHERE tenant = ? AND owner = ? AND id = ?", key).fetchone()
    if row and row[0] in live:
        return False
    return ticket is None or not count_earlier_tickets(connection, key, ticket, live)


def count_earlier_tickets(connection: sqlite3.Connection, key: ThreadKey, ticket: int | None, live: set[int]) -> int:
    """Return the number of live tickets before this one; all of them without a ticket."""
    rows = connection.execute(
        "SELECT worker FROM ticket WHERE tenant = ? AND owner = ? AND id = ? AND no < ?",
        (*key, MAX_SEQ if ticket is None else ticket),
    )
    return sum(worker in live for (worker,) in rows.fetchall())


def _run_info(row: Any) -> RunInfo | None:
    if row is None:
        return None
    key, tenant, owner, thread_id, run_id, first, last = row
    thread_key = ThreadKey(tenant, owner, thread_id)
    return RunInfo(key=key, thread=thread_key, run_id=run_id, first=first, last=0 if last == OPEN_RUN else last)


def _intact_batches(key: ThreadKey, rows: Iterable[Any], begin: int, limit: int) -> Iterator[Batch]:
    """Yield the batches from entry `begin` on, up to a gap or a row with another number of lines, no more than fit into `limit` bytes.

    A row that does not fit is not even split into its lines. Raises: ThreadDamaged if there is none to yield before that.
    """
    size, expected = 0, begin
    for first, last, owner, kind, run_key, ts, body in rows:
        if size and size + len(body) > limit:
            return
        # The first batch may begin earlier, and the caller slices it.
        if first > expected or (size and first < expected):
            if size:
                return
            raise report_thread_damage(key, f"entry {expected} is missing")
        lines = body.split(b"\n") if isinstance(body, bytes) else []
        if len(lines) != last - first + 1:
            if size:
                return
            raise report_thread_damage(key, f"entries {first} to {last} are stored as {len(lines)} lines")
        line_bytes = len(body) - len(lines) + 1
        yield Batch(first=first, owner=owner, kind=kind, run=run_key, ts=ts, lines=lines, size=line_bytes)
        size, expected = size + len(body), last + 1
