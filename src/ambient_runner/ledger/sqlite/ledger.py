"""SqliteLedger: the contract over one database file, for any number of processes on one machine.

Reads go to a few pooled connections in worker threads (`queries.py`), writes to the commit thread (`committer.py`), through the loop side
that all stores share.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.sqlite import checkpoints, queries, thread_queries
from ambient_runner.ledger.sqlite.committer import Committer
from ambient_runner.ledger.sqlite.file_check import OpenedFile
from ambient_runner.ledger.sqlite.outage import Outage
from ambient_runner.ledger.sqlite.read_pool import ReadPool
from ambient_runner.ledger.sqlite.wal import truncate_wal
from ambient_runner.ledger.sqlite.workers import Worker
from ambient_runner.ledger.thread_search import ThreadFilter
from ambient_runner.ledger.threaded_ledger import ThreadedLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.base import Ledger, StoreSettings
    from ambient_runner.ledger.commit_thread import CommitCallbacks
    from ambient_runner.ledger.records import (
        ArchivedFilter,
        Batch,
        ChangedThreads,
        Checkpoint,
        IdempotencyClaim,
        IdempotencyRecord,
        RunInfo,
        ThreadInfo,
        ThreadKey,
        ThreadStatus,
    )

T = TypeVar("T")

_ERASE_TIMEOUT = 10.0
"""Seconds an erasure waits for readers that keep the WAL from being truncated."""


def open_sqlite_store(url: str, settings: StoreSettings) -> Ledger:
    """Return the store of `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`. Raises: ConfigError."""
    _, _, rest = url.partition("://")
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path.endswith("/") or ":memory:" in path:
        raise ConfigError("Name a file: sqlite:///relative/path.db or sqlite:////absolute/path.db.")
    return SqliteLedger(Path(path), url=url, lease=settings.lease, patience=settings.patience)


class SqliteLedger(ThreadedLedger):
    """A store in one file. See `base.Ledger`."""

    def __init__(
        self,
        path: Path,
        *,
        url: str = "",
        lease: float = 10.0,
        patience: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.url = url or f"sqlite:///{path}"
        self.path = path
        self._worker = Worker(lease, clock)
        self._outage = Outage(path, self._worker, patience)
        self._file = OpenedFile(path)
        self._pool = ReadPool(path, self._file)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._pool.close)

    async def get_thread(self, key: ThreadKey) -> ThreadInfo | None:
        return await self._run_query(thread_queries.find_thread, self._worker, key)

    async def list_threads(
        self,
        tenant: str,
        owner: str,
        *,
        limit: int = 100,
        before: str | None = None,
        agents: Collection[str] = (),
        statuses: Collection[ThreadStatus] = (),
        archived: ArchivedFilter = "without",
        search: str = "",
    ) -> list[ThreadInfo]:
        wanted = ThreadFilter(agents=agents, statuses=statuses, archived=archived, search=search)
        return await self._run_query(thread_queries.list_threads, self._worker, tenant, owner, limit, before, wanted)

    async def list_changed_threads(
        self, tenant: str, owner: str, *, after: str | None, limit: int = 100
    ) -> ChangedThreads:
        return await self._run_query(thread_queries.list_changed_threads, self._worker, tenant, owner, after, limit)

    async def list_active_threads(self, tenant: str, owner: str) -> list[ThreadKey]:
        return await self._run_query(thread_queries.list_active_threads, self._worker, tenant, owner)

    async def list_all_threads(self, *, limit: int = 100) -> list[ThreadInfo]:
        return await self._run_query(thread_queries.list_all_threads, self._worker, limit)

    async def get_run(self, key: ThreadKey, run: str) -> RunInfo | None:
        return await self._run_query(queries.find_run, key, run)

    async def list_runs(self, key: ThreadKey, *, limit: int = 100, before: int | None = None) -> list[RunInfo]:
        return await self._run_query(queries.list_runs, key, limit, before)

    async def find_run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        return await self._run_query(queries.find_run_at, key, seq)

    async def find_idempotency_record(self, tenant: str, claim: IdempotencyClaim) -> IdempotencyRecord | None:
        return await self._run_query(queries.find_idempotency_record, tenant, claim, time.time_ns() // 1_000_000)

    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        return await self._run_query(queries.read_batches, key, epoch, after, until, limit)

    async def list_abandoned_runs(self, *, limit: int = 100) -> list[RunInfo]:
        return await self._run_query(queries.list_abandoned_runs, self._worker, limit)

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        return await self._run_query(checkpoints.find_checkpoint, key, at, epoch)

    async def list_checkpoint_parts(self, key: ThreadKey) -> list[int]:
        return await self._run_query(checkpoints.list_checkpoint_parts, key)

    async def erase_thread(self, key: ThreadKey) -> bool:
        if not await super().erase_thread(key):
            return False
        await anyio.to_thread.run_sync(truncate_wal, self.path, _ERASE_TIMEOUT)
        return True

    def _create_commit_thread(self, callbacks: CommitCallbacks) -> Committer:
        return Committer(self.path, self._file, self._worker, self._outage, callbacks)

    def _find_failure(self) -> LedgerError | None:
        return self._file.damage_error or self._outage.failure

    async def _is_free(self, key: ThreadKey, ticket: int | None) -> bool:
        return await self._run_query(queries.is_free, self._worker, key, ticket)

    async def _run_query(self, query: Callable[..., T], *args: Any) -> T:
        return await self._pool.run_query(lambda connection: query(connection, *args))
