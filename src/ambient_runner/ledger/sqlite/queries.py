"""What can be asked of the database without writing. Plain functions over a connection; each runs in one read transaction.

They are short on purpose: a read transaction that stays open keeps the WAL from being truncated, and erasure waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.errors import UnknownThread
from ambient_runner.ledger.base import KEY_AGE, Batch, Checkpoint, KeyUse, RunInfo, ThreadInfo, ThreadKey
from ambient_runner.ledger.fanout import cut
from ambient_runner.ledger.sqlite import row_index
from ambient_runner.ledger.sqlite.row_index import ALL, HORIZON

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from ambient_runner.ledger.base import KeyClaim
    from ambient_runner.ledger.sqlite.workers import Worker


_THREAD_NO = "SELECT no, epoch FROM thread WHERE tenant = ? AND owner = ? AND id = ?"
# Entries are numbered without holes, so the last place of a thread has its newest placed seq; an emptied thread goes on from its floor.
PLACED = "coalesce((SELECT last FROM place WHERE thread_no = t.no ORDER BY first DESC LIMIT 1), t.floor)"
_INFO = f"""
SELECT t.no, {HORIZON}, t.tenant, t.owner, t.id, t.agent, t.epoch, t.created, t.updated, t.floor + 1, {PLACED}, l.worker, l.run,
       (SELECT group_concat(worker) FROM ticket k WHERE k.tenant = t.tenant AND k.owner = t.owner AND k.id = t.id)
FROM thread t LEFT JOIN lease l ON l.tenant = t.tenant AND l.owner = t.owner AND l.id = t.id
"""  # noqa: S608  our own text
_ONE = _INFO + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ?"
_NEWEST_FIRST = _INFO + "WHERE t.tenant = ? AND t.owner = ? AND t.updated < ? ORDER BY t.updated DESC LIMIT ?"
OPEN = 1 << 40
"""`run.last` of a run without a terminal entry."""
_RUN = """
SELECT r.key, t.tenant, t.owner, t.id, r.run_id, r.first, r.last FROM run r JOIN thread t ON t.no = r.thread_no
"""
_RUN_BY_KEY = _RUN + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ? AND r.key = ?"
_RUN_AT = _RUN + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ? AND r.first <= ? ORDER BY r.first DESC LIMIT 1"
_OPEN_RUNS = """
SELECT l.worker, r.key, t.tenant, t.owner, t.id, r.run_id, r.first, r.last
FROM run r JOIN thread t ON t.no = r.thread_no
LEFT JOIN lease l ON l.tenant = t.tenant AND l.owner = t.owner AND l.id = t.id
WHERE r.last = 1099511627776 ORDER BY r.thread_no, r.first
"""
_BATCH = "b.first, b.owner, b.kind, b.run, b.ts, b.body"
_KEY = "SELECT digest, tenant, owner, id, run FROM idempotency WHERE scope = ? AND used > ?"
_CHECKPOINT = "SELECT seq, body FROM checkpoint WHERE thread_no = ? AND seq <= ?"


def thread(connection: sqlite3.Connection, worker: Worker, key: ThreadKey) -> ThreadInfo | None:
    rows = connection.execute(_ONE, key).fetchall()
    return next(_infos(connection, rows, worker), None) if rows else None


def threads(
    connection: sqlite3.Connection, worker: Worker, tenant: str, owner: str, limit: int, before: int | None
) -> list[ThreadInfo]:
    rows = connection.execute(
        _NEWEST_FIRST, (tenant, owner, ALL if before is None else min(before, ALL), limit)
    ).fetchall()
    return list(_infos(connection, rows, worker))


def run(connection: sqlite3.Connection, key: ThreadKey, run: str) -> RunInfo | None:
    return _run_info(connection.execute(_RUN_BY_KEY, (*key, run)).fetchone())


def run_at(connection: sqlite3.Connection, key: ThreadKey, seq: int) -> RunInfo | None:
    return _run_info(connection.execute(_RUN_AT, (*key, min(seq, ALL))).fetchone())


def abandoned(connection: sqlite3.Connection, worker: Worker) -> list[RunInfo]:
    rows = connection.execute(_OPEN_RUNS).fetchall()
    living = worker.living(connection) if rows else set[int]()
    return [info for holder, *row in rows if holder not in living and (info := _run_info(row))]


def key_use(connection: sqlite3.Connection, claim: KeyClaim, now: int) -> KeyUse | None:
    row = connection.execute(_KEY, (claim.scope, now - KEY_AGE)).fetchone()
    if row is None:
        return None
    digest, tenant, owner, thread_id, run_key = row
    key = ThreadKey(tenant, owner, thread_id)
    return KeyUse(digest=digest, thread=key, run=run(connection, key, run_key))


def checkpoint(connection: sqlite3.Connection, key: ThreadKey, at: int | None) -> Checkpoint | None:
    found = connection.execute(_THREAD_NO, key).fetchone()
    row = found and connection.execute(_CHECKPOINT, (found[0], ALL if at is None else at)).fetchone()
    return Checkpoint(seq=row[0], body=row[1]) if row else None


def batches(
    connection: sqlite3.Connection, key: ThreadKey, life: str, after: int, until: int | None, limit: int
) -> list[Batch]:
    """Batches of that life of the thread (of any when `life` is empty). Raises: UnknownThread when that life is over."""
    found = connection.execute(_THREAD_NO, key).fetchone()
    if found is None or (life and found[1] != life):
        if life:
            raise UnknownThread
        return []
    after, last = min(after, ALL - 1), ALL if until is None else min(until, ALL)
    if after >= last:
        return []
    rows = row_index.rows(connection, found[0], _BATCH, after + 1, last)
    return [cut(batch, after + 1, last) for batch in _up_to(rows, limit)]


def is_free(connection: sqlite3.Connection, worker: Worker, key: ThreadKey, ticket: int | None) -> bool:
    """Whether `acquire` with this ticket would get the lease now; without one, whether nobody holds it."""
    living = worker.living(connection)
    row = connection.execute("SELECT worker FROM lease WHERE tenant = ? AND owner = ? AND id = ?", key).fetchone()
    if row and row[0] in living:
        return False
    return ticket is None or not tickets_before(connection, key, ticket, living)


def tickets_before(connection: sqlite3.Connection, key: ThreadKey, ticket: int | None, living: set[int]) -> int:
    """How many living tickets stand in line before this one; all of them for someone without one."""
    rows = connection.execute(
        "SELECT worker FROM ticket WHERE tenant = ? AND owner = ? AND id = ? AND no < ?",
        (*key, ALL if ticket is None else ticket),
    )
    return sum(worker in living for (worker,) in rows.fetchall())


def _infos(connection: sqlite3.Connection, rows: Sequence[Any], worker: Worker) -> Iterator[ThreadInfo]:
    living = worker.living(connection)
    horizons = [horizon for _, horizon, *_ in rows if horizon is not None]
    loose = row_index.newest_since(connection, min(horizons)) if horizons else {}
    for no, _, tenant, owner, thread_id, agent, epoch, created, updated, first, last, holder, active, line in rows:
        yield ThreadInfo(
            key=ThreadKey(tenant, owner, thread_id),
            agent=agent,
            epoch=epoch,
            created=created,
            updated=updated,
            first=first,
            last=max(last, loose.get(no, 0)),
            active=active if holder in living else "",
            queued=sum(int(one) in living for one in line.split(",")) if line else 0,
        )


def _run_info(row: Any) -> RunInfo | None:
    if row is None:
        return None
    key, tenant, owner, thread_id, run_id, first, last = row
    thread_key = ThreadKey(tenant, owner, thread_id)
    return RunInfo(key=key, thread=thread_key, run_id=run_id, first=first, last=0 if last == OPEN else last)


def _up_to(rows: Iterable[Any], limit: int) -> Iterator[Batch]:
    size = 0
    for first, owner, kind, run_key, ts, body in rows:
        yield Batch(first=first, owner=owner, kind=kind, run=run_key, ts=ts, lines=body.split(b"\n"))
        size += len(body)
        if size >= limit:
            return
