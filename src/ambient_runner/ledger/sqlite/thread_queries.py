"""Read-only queries for threads: one, or a list of an owner's. Like `queries.py`: plain functions, each in one read transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ambient_runner.ledger.records import ThreadInfo, ThreadKey
from ambient_runner.ledger.sqlite import row_index
from ambient_runner.ledger.sqlite.queries import LAST_INDEXED
from ambient_runner.ledger.sqlite.row_index import HORIZON, MAX_SEQ
from ambient_runner.ledger.sqlite.thread_row import STATUSES
from ambient_runner.ledger.thread_changes import ChangeOrder, collect_changes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from ambient_runner.ledger.records import ArchivedFilter, ChangedThreads
    from ambient_runner.ledger.sqlite.workers import Worker
    from ambient_runner.ledger.thread_search import ThreadFilter

__all__ = ["find_thread", "list_active_threads", "list_all_threads", "list_changed_threads", "list_threads"]

_INFO = f"""
SELECT t.no, {HORIZON}, t.tenant, t.owner, t.id, t.agent, t.epoch, t.created, t.updated, t.floor + 1, {LAST_INDEXED}, l.worker, l.run,
       (SELECT group_concat(worker) FROM ticket k WHERE k.tenant = t.tenant AND k.owner = t.owner AND k.id = t.id),
       (SELECT group_concat(worker) FROM reader d WHERE d.tenant = t.tenant AND d.owner = t.owner AND d.id = t.id),
       b.title, t.archived, t.status, t.changed
FROM thread t CROSS JOIN label b ON b.no = t.label
LEFT JOIN lease l ON l.tenant = t.tenant AND l.owner = t.owner AND l.id = t.id
"""  # noqa: S608  our own text
_BY_KEY = _INFO + "WHERE t.tenant = ? AND t.owner = ? AND t.id = ?"
_ALL_NEWEST_FIRST = _INFO + "ORDER BY t.changed DESC LIMIT ?"
_OWNED = "WHERE t.tenant = :tenant AND t.owner = :owner"
_CHANGED_SINCE = _INFO + f"{_OWNED} AND t.changed > :after ORDER BY t.changed LIMIT :limit"
_ERASED_SINCE = """
SELECT changed, id FROM erased WHERE tenant = :tenant AND owner = :owner AND changed > :after ORDER BY changed LIMIT :limit
"""
_NEWEST_CHANGE = """
SELECT max(coalesce((SELECT max(changed) FROM thread WHERE tenant = :tenant AND owner = :owner), 0),
           coalesce((SELECT max(changed) FROM erased WHERE tenant = :tenant AND owner = :owner), 0))
"""
_HELD = "SELECT worker, id FROM lease WHERE tenant = ? AND owner = ?"
_ORDER = "SELECT store, newest, dropped FROM change_counter"
_ARCHIVED: dict[ArchivedFilter, str] = {"without": " AND NOT t.archived", "only": " AND t.archived", "with": ""}


def find_thread(connection: sqlite3.Connection, worker: Worker, key: ThreadKey) -> ThreadInfo | None:
    rows = connection.execute(_BY_KEY, key).fetchall()
    return next(_thread_infos(connection, rows, worker, _change_order(connection)), None) if rows else None


def list_threads(
    connection: sqlite3.Connection,
    worker: Worker,
    tenant: str,
    owner: str,
    limit: int,
    before: str | None,
    wanted: ThreadFilter,
) -> list[ThreadInfo]:
    order = _change_order(connection)
    values = {
        "tenant": tenant,
        "owner": owner,
        "limit": limit,
        "before": MAX_SEQ if before is None else order.parse_cursor(before),
        "agents": json.dumps(list(wanted.agents)),
        "statuses": json.dumps([STATUSES.index(status) for status in wanted.statuses]),
        "search": wanted.folded_search,
    }
    return list(_thread_infos(connection, connection.execute(_list_query(wanted), values).fetchall(), worker, order))


def list_changed_threads(
    connection: sqlite3.Connection, worker: Worker, tenant: str, owner: str, after: str | None, limit: int
) -> ChangedThreads:
    order = _change_order(connection)
    owned = {"tenant": tenant, "owner": owner}
    if after is None:
        newest = connection.execute(_NEWEST_CHANGE, owned).fetchone()[0]
        return collect_changes(order, newest, (), (), limit)
    position = order.parse_change_cursor(after)
    since = {**owned, "after": position, "limit": limit + 1}
    rows = connection.execute(_CHANGED_SINCE, since).fetchall()
    erased = connection.execute(_ERASED_SINCE, since).fetchall()
    infos = _thread_infos(connection, rows, worker, order) if rows else ()
    changed = [(row[-1], info) for row, info in zip(rows, infos, strict=True)]
    return collect_changes(order, position, changed, erased, limit)


def list_active_threads(connection: sqlite3.Connection, worker: Worker, tenant: str, owner: str) -> list[ThreadKey]:
    rows = connection.execute(_HELD, (tenant, owner)).fetchall()
    live = worker.live_workers(connection) if rows else set[int]()
    return [ThreadKey(tenant, owner, thread_id) for holder, thread_id in rows if holder in live]


def list_all_threads(connection: sqlite3.Connection, worker: Worker, limit: int) -> list[ThreadInfo]:
    rows = connection.execute(_ALL_NEWEST_FIRST, (limit,)).fetchall()
    return list(_thread_infos(connection, rows, worker, _change_order(connection)))


def _list_query(wanted: ThreadFilter) -> str:
    """Return the query of a page. Each condition is there only if it is needed: most lists have none."""
    agents = " AND t.agent IN (SELECT value FROM json_each(:agents))" if wanted.agents else ""
    statuses = " AND t.status IN (SELECT value FROM json_each(:statuses))" if wanted.statuses else ""
    search = " AND instr(b.searched, :search)" if wanted.search else ""
    conditions = f"{_OWNED} AND t.changed < :before{_ARCHIVED[wanted.archived]}{agents}{statuses}{search}"
    return f"{_INFO}{conditions} ORDER BY t.changed DESC LIMIT :limit"


def _change_order(connection: sqlite3.Connection) -> ChangeOrder:
    return ChangeOrder(*connection.execute(_ORDER).fetchone())


def _thread_infos(
    connection: sqlite3.Connection, rows: Sequence[Any], worker: Worker, order: ChangeOrder
) -> Iterator[ThreadInfo]:
    live = worker.live_workers(connection)
    horizons = [horizon for _, horizon, *_ in rows if horizon is not None]
    unindexed = row_index.newest_since(connection, min(horizons)) if horizons else {}
    for row in rows:
        no, _, tenant, owner, thread_id, agent, epoch, created, updated, first, last, holder, active, queue = row[:14]
        readers, title, archived, status, changed = row[14:]
        yield ThreadInfo(
            key=ThreadKey(tenant, owner, thread_id),
            agent=agent,
            epoch=epoch,
            created=created,
            updated=updated,
            first=first,
            last=max(last, unindexed.get(no, 0)),
            active=active if holder in live else "",
            queued=_count_live(queue, live),
            readers=_count_live(readers, live - {holder}),
            title=title,
            archived=bool(archived),
            status=STATUSES[int(status)],
            cursor=order.to_cursor(changed),
        )


def _count_live(workers: str | None, live: set[int]) -> int:
    """Return how many of these workers, a list with commas, are live."""
    return sum(int(worker) in live for worker in workers.split(",")) if workers else 0
