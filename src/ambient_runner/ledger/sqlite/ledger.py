"""SqliteLedger: the contract over one database file, for any number of processes on one machine.

Writes go to the commit thread (`committer.py`), reads to a few pooled connections in worker threads (`queries.py`),
live readers to `fanout.py`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import ConfigError, LeaseLost, LedgerError
from ambient_runner.ledger.buffered_writer import Append, BufferedWriter, FlushScheduler, check_facts
from ambient_runner.ledger.fanout import ChannelRegistry, ReleaseNotifier, live_tail
from ambient_runner.ledger.sqlite import checkpoints, queries, thread_queries
from ambient_runner.ledger.sqlite.committer import CommitJob, CommitOutcome, Committer
from ambient_runner.ledger.sqlite.file_check import OpenedFile
from ambient_runner.ledger.sqlite.outage import Outage
from ambient_runner.ledger.sqlite.read_pool import ReadPool
from ambient_runner.ledger.sqlite.wal import truncate_wal
from ambient_runner.ledger.sqlite.workers import Worker
from ambient_runner.ledger.thread_search import ThreadFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence
    from types import TracebackType

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.base import Ledger, StoreSettings, Tail, Writer
    from ambient_runner.ledger.fanout import Channel
    from ambient_runner.ledger.records import (
        ArchivedFilter,
        Batch,
        ChangedThreads,
        Checkpoint,
        Fact,
        IdempotencyClaim,
        IdempotencyRecord,
        RunInfo,
        ThreadInfo,
        ThreadKey,
        ThreadLabels,
        ThreadStatus,
    )
    from ambient_runner.ledger.sqlite.commands import Lease, PublishedBatch, WriteCommands
    from ambient_runner.ledger.sqlite.external_changes import ExternalChanges

T = TypeVar("T")

_CLOSED = "The store is closed."
_ERASE_TIMEOUT = 10.0
"""Seconds an erasure waits for readers that keep the WAL from being truncated."""
_REGISTER_DELAY = 0.1
"""Seconds after which the readers of a run that has ended here are registered, if they still read the thread."""
_RELEASE_CHECK_INTERVAL = 0.25
"""Seconds between checks if the process that holds the lease has died: it sends no notification."""


def open_sqlite_store(url: str, settings: StoreSettings) -> Ledger:
    """Return the store of `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`. Raises: ConfigError."""
    _, _, rest = url.partition("://")
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path.endswith("/") or ":memory:" in path:
        raise ConfigError("Name a file: sqlite:///relative/path.db or sqlite:////absolute/path.db.")
    return SqliteLedger(Path(path), url=url, lease=settings.lease, patience=settings.patience)


class SqliteLedger:
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
        self.url = url or f"sqlite:///{path}"
        self.path = path
        self._worker = Worker(lease, clock)
        self._outage = Outage(path, self._worker, patience)
        self._channels = ChannelRegistry(self._start_polling, self._update_registration)
        self._read_threads: set[ThreadKey] = set()
        """Threads that other processes know this one to read."""
        self._release_notifier = ReleaseNotifier()
        self._scheduler = FlushScheduler(self.submit_appends)
        self._file = OpenedFile(path)
        self._pool = ReadPool(path, self._file)
        self._is_closed = False
        self._leases: dict[BufferedWriter, tuple[Lease, Channel]] = {}
        self._writers: dict[int, BufferedWriter] = {}

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[RunnerError | None] = self._loop.create_future()
        self._committer = Committer(
            self.path,
            self._file,
            self._worker,
            self._outage,
            self._prerender,
            self._deliver_outcome,
            partial(self._call_on_loop, _set_result, opened),
        )
        self._committer.start()
        with anyio.CancelScope(shield=True):
            if error := await opened:
                await anyio.to_thread.run_sync(self._committer.join)
                raise error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.flush()
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._committer.close)
            await anyio.to_thread.run_sync(self._pool.close)

    async def acquire_lease(
        self, key: ThreadKey, run: str, *, claim: IdempotencyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        lease = await self._run_command(
            lambda writes: writes.acquire_lease(key, run, claim, ticket), undo=self._release_unused, is_durable=False
        )
        channel = self._channels.open_channel(key)
        writer = BufferedWriter(
            self,
            self._scheduler,
            thread=key,
            run=run,
            epoch=lease.epoch,
            token=lease.token,
            last=lease.last,
            has_begun=lease.has_begun,
            has_ended=lease.has_ended,
        )
        self._leases[writer] = (lease, channel)
        self._writers[lease.token] = writer
        if lease.thread_no:
            self._channels.update_last(key, lease.epoch, lease.last)
        return writer

    async def begin_run(
        self,
        writer: BufferedWriter,
        facts: list[Fact],
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str,
    ) -> int:
        lease, _ = self._leases[writer]
        return await self._run_command(lambda writes: writes.begin_run(lease, facts, run_id, agent, claim, title))

    def submit_appends(self, appends: list[Append]) -> None:
        if self._is_closed:
            for append in appends:
                append.writer.mark_failed(LedgerError(_CLOSED))
            return
        self._committer.submit(appends)

    async def release_lease(self, writer: BufferedWriter) -> None:
        held = self._leases.pop(writer, None)
        if held is None:
            return
        lease, channel = held
        with suppress(LedgerError):  # Closed in the meantime: closing released every lease.
            await self._run_command(
                lambda writes: writes.release_lease(lease.token), must_succeed=True, is_durable=False
            )
        self._writers.pop(lease.token, None)
        self._channels.close_channel(channel)
        if self._channels.has_readers(writer.thread):
            # Most are about to leave with the run they have read.
            self._loop.call_later(_REGISTER_DELAY, self._update_registration, writer.thread)
        self._release_notifier.notify(writer.thread)

    async def wait_released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        self._start_polling()
        free = partial(self._run_query, queries.is_free, self._worker, key, ticket)
        with anyio.move_on_after(timeout):
            try:
                await self._release_notifier.wait_until_free(key, free, _RELEASE_CHECK_INTERVAL)
            finally:
                self._update_polling()
            return True
        return False

    @asynccontextmanager
    async def queue_ticket(self, key: ThreadKey, *, depth: int) -> AsyncGenerator[int, None]:
        ticket = await self._run_command(
            lambda writes: writes.join_queue(key, depth), undo=self._discard_ticket, is_durable=False
        )
        try:
            yield ticket
        finally:
            with anyio.CancelScope(shield=True), suppress(LedgerError):
                await self._run_command(lambda writes: writes.leave_queue(ticket), must_succeed=True, is_durable=False)
            self._release_notifier.notify(key)

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        token = await self._run_command(lambda writes: writes.request_stop(key, reason, run), is_durable=False)
        if writer := self._writers.get(token or 0):
            writer.signal_stop(reason)
        return token is not None

    async def append_facts(
        self,
        key: ThreadKey,
        facts: Sequence[Fact],
        *,
        expect: int | None = None,
        labels: ThreadLabels | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> int:
        check_facts(facts, labels)
        return await self._run_command(lambda writes: writes.append_facts(key, facts, expect, labels, claim))

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

    @asynccontextmanager
    async def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AsyncGenerator[Tail, None]:
        try:
            async with live_tail(self._channels, key, after, self.get_thread, self._read_epoch, epoch) as tail:
                yield tail
        finally:
            self._update_polling()

    async def list_abandoned_runs(self, *, limit: int = 100) -> list[RunInfo]:
        return await self._run_query(queries.list_abandoned_runs, self._worker, limit)

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        return await self._run_query(checkpoints.find_checkpoint, key, at, epoch)

    async def list_checkpoint_parts(self, key: ThreadKey) -> list[int]:
        return await self._run_query(checkpoints.list_checkpoint_parts, key)

    async def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, *, epoch: str = "") -> None:
        await self._run_command(lambda writes: writes.trim_thread(key, checkpoint, epoch))

    async def erase_thread(self, key: ThreadKey) -> bool:
        if not await self._run_command(lambda writes: writes.erase_thread(key)):
            return False
        await anyio.to_thread.run_sync(truncate_wal, self.path, _ERASE_TIMEOUT)
        self._release_notifier.notify(key)
        return True

    def unavailable_reason(self) -> str | None:
        if self._is_closed or not self._committer.is_alive():
            return _CLOSED
        return self._outage.failure.message if self._outage.failure else None

    def pause(self) -> None:
        """Stop renewing leases and polling for changes, as if this process were suspended. For tests of takeover."""
        self._committer.is_paused = True

    async def _read_epoch(self, key: ThreadKey, epoch: str, after: int, limit: int) -> list[Batch]:
        return await self.read_batches(key, after, limit=limit, epoch=epoch)

    async def _run_query(self, query: Callable[..., T], *args: Any) -> T:
        return await self._pool.run_query(lambda connection: query(connection, *args))

    async def _run_command(
        self,
        work: Callable[[WriteCommands], T],
        *,
        undo: Callable[[T], None] | None = None,
        must_succeed: bool = False,
        is_durable: bool = True,
    ) -> T:
        """Return the committed result of `work`. If the caller is cancelled meanwhile, `undo` is called with the result instead."""
        if self._is_closed or not self._committer.is_alive():
            raise LedgerError(_CLOSED)
        self._scheduler.flush()  # Keep the order: earlier appends are committed first.
        future: asyncio.Future[T] = self._loop.create_future()
        self._committer.submit(CommitJob(work, future, must_succeed, is_durable))
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([future])
        except asyncio.CancelledError:
            future.add_done_callback(partial(_undo_result, undo))
            raise
        return future.result()

    def _release_unused(self, lease: Lease) -> None:
        self._submit_later(lambda writes: writes.release_lease(lease.token))

    def _discard_ticket(self, ticket: int) -> None:
        self._submit_later(lambda writes: writes.leave_queue(ticket))

    def _update_registration(self, key: ThreadKey) -> None:
        """Tell other processes if this one reads a thread that it does not write. Its own readers of its own runs it counts itself."""
        is_known = key in self._read_threads
        is_reading = self._channels.has_readers(key) and (is_known or not self._channels.has_writer(key))
        if is_reading == is_known or self._is_closed:
            return
        if is_reading:
            self._read_threads.add(key)
            self._submit_later(lambda writes: writes.add_reader(key))
        else:
            self._read_threads.discard(key)
            self._submit_later(lambda writes: writes.remove_reader(key))

    def _submit_later(self, work: Callable[[WriteCommands], None]) -> None:
        self._committer.submit(CommitJob(work, self._loop.create_future(), must_succeed=True, is_durable=False))

    def _start_polling(self) -> None:
        if not self._committer.is_polling:
            self._committer.is_polling = True
            self._committer.wake()

    def _update_polling(self) -> None:
        self._committer.is_polling = bool(self._channels.readers or len(self._release_notifier))

    def _prerender(self, published: list[PublishedBatch]) -> None:
        """Called on the commit thread: let the loop prepare the batches while the disk is busy."""
        self._call_on_loop(self._prepare_batches, published)

    def _prepare_batches(self, published: list[PublishedBatch]) -> None:
        for key, epoch, batch in published:
            if batch is not None:
                self._channels.prepare(key, epoch, batch)

    def _deliver_outcome(self, outcome: CommitOutcome) -> None:
        """Called on the commit thread: pass the outcome to the loop."""
        self._call_on_loop(self._settle_outcome, outcome)

    def _call_on_loop(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _settle_outcome(self, outcome: CommitOutcome) -> None:
        """Publish first, then resolve futures, so that a caller who awaited a commit finds it published."""
        if outcome.unusable is not None:
            self._end_all(outcome.unusable)
        if outcome.changes is not None:
            self._apply_changes(outcome.changes)
        for key, epoch, batch in outcome.published:
            if batch is None:
                self._end_epoch(key, epoch)
            else:
                self._channels.publish(key, epoch, batch)
        for append, newest in outcome.committed:
            append.writer.mark_committed(append.entry_count, append.size, newest)
        for append, error in outcome.refused:
            append.writer.mark_failed(error)
        for job, result, error in outcome.answers:
            _resolve_job(job.future, result, error)

    def _end_all(self, error: LedgerError) -> None:
        """End all readers and writers: the store can no longer be used."""
        self._channels.fail_readers(error)
        for writer in self._writers.values():
            writer.mark_failed(error)
        self._release_notifier.notify_all()

    def _end_epoch(self, key: ThreadKey, epoch: str) -> None:
        """End readers and writers of a thread that was erased."""
        self._channels.end_readers(key, epoch)
        for writer in self._writers.values():
            if writer.thread == key and writer.epoch == epoch:
                writer.mark_failed(LeaseLost())

    def _apply_changes(self, changes: ExternalChanges) -> None:
        for key, epoch in changes.erased:
            self._end_epoch(key, epoch)
        for key, epoch, last in changes.grown:
            self._channels.update_last(key, epoch, last)
        for token, reason in changes.stops:
            if writer := self._writers.get(token):
                writer.signal_stop(reason)
        for token in self._writers.keys() - changes.held_leases:
            self._writers[token].mark_failed(LeaseLost())
        self._release_notifier.notify_all()


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _resolve_job(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _undo_result(undo: Callable[[T], None] | None, future: asyncio.Future[T]) -> None:
    if future.cancelled() or future.exception() is not None or undo is None:
        return
    undo(future.result())
