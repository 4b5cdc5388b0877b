"""SqliteLedger: the contract over one database file, for any number of processes on one machine.

Writing goes to the committing thread (`committer.py`), reading to a few pooled connections in worker threads
(`queries.py`), live readers to `live.py`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import LeaseLost, LedgerError
from ambient_runner.ledger.buffered_writer import Append, Outbox, QueuedWriter, check_note
from ambient_runner.ledger.fanout import Bell, Hub, live_tail
from ambient_runner.ledger.sqlite import queries
from ambient_runner.ledger.sqlite.committer import Committer, Job, Outcome
from ambient_runner.ledger.sqlite.read_pool import Pool
from ambient_runner.ledger.sqlite.wal import truncate
from ambient_runner.ledger.sqlite.workers import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.base import (
        Batch,
        Checkpoint,
        Fact,
        KeyClaim,
        KeyUse,
        RunInfo,
        Tail,
        ThreadInfo,
        ThreadKey,
        Writer,
    )
    from ambient_runner.ledger.fanout import Channel
    from ambient_runner.ledger.sqlite.commands import Lease, Published, Writes
    from ambient_runner.ledger.sqlite.external_changes import News

T = TypeVar("T")

_ERASE_PATIENCE = 10.0
_FREE_PATIENCE = 0.25
"""How often a waiter looks whether the holder has died: the dead do not ring."""


class SqliteLedger:
    """A store in one file. See `base.Ledger`."""

    def __init__(
        self, path: Path, *, url: str = "", lease: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = url or f"sqlite:///{path}"
        self.path = path
        self._worker = Worker(lease, clock)
        self._hub = Hub(self._someone_cares)
        self._bell = Bell()
        self._outbox = Outbox(self.submit)
        self._pool = Pool(path)
        self._closed = False
        self._leases: dict[QueuedWriter, tuple[Lease, Channel]] = {}
        self._writers: dict[int, QueuedWriter] = {}

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[RunnerError | None] = self._loop.create_future()
        self._committer = Committer(
            self.path, self._worker, self._foresee, self._hand_over, partial(self._call, _set, opened)
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
        self._outbox.flush()
        self._closed = True
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._committer.close)
            await anyio.to_thread.run_sync(self._pool.close)

    async def acquire(
        self, key: ThreadKey, run: str, *, claim: KeyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        lease = await self._do(
            lambda writes: writes.acquire(key, run, claim, ticket), undo=self._give_back, durable=False
        )
        channel = self._hub.open(key)
        writer = QueuedWriter(
            self,
            self._outbox,
            thread=key,
            run=run,
            epoch=lease.epoch,
            token=lease.token,
            last=lease.last,
            begun=lease.begun,
            ended=lease.ended,
        )
        self._leases[writer] = (lease, channel)
        self._writers[lease.token] = writer
        if lease.thread_no:
            self._hub.learn(key, lease.epoch, lease.last)
        return writer

    async def begin(
        self, writer: QueuedWriter, facts: list[Fact], run_id: str, agent: str, claim: KeyClaim | None
    ) -> int:
        lease, _ = self._leases[writer]
        return await self._do(lambda writes: writes.begin(lease, facts, run_id, agent, claim))

    def submit(self, appends: list[Append]) -> None:
        if self._closed:
            for append in appends:
                append.writer.failed(LedgerError("The store is closed."))
            return
        self._committer.submit(appends)

    async def release(self, writer: QueuedWriter) -> None:
        held = self._leases.pop(writer, None)
        if held is None:
            return
        lease, channel = held
        with suppress(LedgerError):  # closed meanwhile: closing gave everything back
            await self._do(lambda writes: writes.release(lease.token), insist=True, durable=False)
        self._writers.pop(lease.token, None)
        self._hub.close(channel)
        self._bell.ring(writer.thread)

    async def released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        self._someone_cares()
        free = partial(self._read, queries.is_free, self._worker, key, ticket)
        with anyio.move_on_after(timeout):
            try:
                await self._bell.wait(key, free, _FREE_PATIENCE)
            finally:
                self._look_whether_anyone_cares()
            return True
        return False

    @asynccontextmanager
    async def queueing(self, key: ThreadKey, *, depth: int) -> AsyncGenerator[int, None]:
        ticket = await self._do(lambda writes: writes.queue(key, depth), undo=self._tear_up, durable=False)
        try:
            yield ticket
        finally:
            with anyio.CancelScope(shield=True), suppress(LedgerError):
                await self._do(lambda writes: writes.leave_queue(ticket), insist=True, durable=False)
            self._bell.ring(key)

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        token = await self._do(lambda writes: writes.request_stop(key, reason, run), durable=False)
        if writer := self._writers.get(token or 0):
            writer.stop(reason)
        return token is not None

    async def note(self, key: ThreadKey, facts: Sequence[Fact], *, expect: int | None = None) -> int:
        check_note(facts)
        return await self._do(lambda writes: writes.note(key, facts, expect))

    async def thread(self, key: ThreadKey) -> ThreadInfo | None:
        return await self._read(queries.thread, self._worker, key)

    async def threads(
        self, tenant: str, owner: str, *, limit: int = 100, before: int | None = None
    ) -> list[ThreadInfo]:
        return await self._read(queries.threads, self._worker, tenant, owner, limit, before)

    async def run(self, key: ThreadKey, run: str) -> RunInfo | None:
        return await self._read(queries.run, key, run)

    async def run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        return await self._read(queries.run_at, key, seq)

    async def key_use(self, claim: KeyClaim) -> KeyUse | None:
        return await self._read(queries.key_use, claim, time.time_ns() // 1_000_000)

    async def read(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        return await self._read(queries.batches, key, epoch, after, until, limit)

    @asynccontextmanager
    async def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AsyncGenerator[Tail, None]:
        try:
            async with live_tail(self._hub, key, after, self.thread, self._read_life, epoch) as tail:
                yield tail
        finally:
            self._look_whether_anyone_cares()

    async def abandoned(self) -> list[RunInfo]:
        return await self._read(queries.abandoned, self._worker)

    async def checkpoint(self, key: ThreadKey, at: int | None = None) -> Checkpoint | None:
        return await self._read(queries.checkpoint, key, at)

    async def trim(self, key: ThreadKey, checkpoint: Checkpoint) -> None:
        await self._do(lambda writes: writes.trim(key, checkpoint))

    async def erase(self, key: ThreadKey) -> bool:
        if not await self._do(lambda writes: writes.erase(key)):
            return False
        await anyio.to_thread.run_sync(truncate, self.path, _ERASE_PATIENCE)
        self._bell.ring(key)
        return True

    def pause(self) -> None:
        """Neither renew leases nor notice other processes, as if this one were stopped. For tests of takeover."""
        self._committer.paused = True

    async def _read_life(self, key: ThreadKey, life: str, after: int) -> list[Batch]:
        return await self.read(key, after, epoch=life)

    async def _read(self, question: Callable[..., T], *args: Any) -> T:
        return await self._pool.read(lambda connection: question(connection, *args))

    async def _do(
        self,
        work: Callable[[Writes], T],
        *,
        undo: Callable[[T], None] | None = None,
        insist: bool = False,
        durable: bool = True,
    ) -> T:
        """The result of `work`, committed. A caller who is cancelled meanwhile cannot use it: then `undo` gets it."""
        if self._closed or not self._committer.is_alive():
            raise LedgerError("The store is closed.")
        self._outbox.flush()  # what was appended before comes before
        future: asyncio.Future[T] = self._loop.create_future()
        self._committer.submit(Job(work, future, insist, durable))
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([future])
        except asyncio.CancelledError:
            future.add_done_callback(partial(_undo, undo))
            raise
        return future.result()

    def _give_back(self, lease: Lease) -> None:
        self._submit_later(lambda writes: writes.release(lease.token))

    def _tear_up(self, ticket: int) -> None:
        self._submit_later(lambda writes: writes.leave_queue(ticket))

    def _submit_later(self, work: Callable[[Writes], None]) -> None:
        self._committer.submit(Job(work, self._loop.create_future(), insist=True, durable=False))

    def _someone_cares(self) -> None:
        if not self._committer.watched:
            self._committer.watched = True
            self._committer.nudge()

    def _look_whether_anyone_cares(self) -> None:
        self._committer.watched = bool(self._hub.readers or len(self._bell))

    def _foresee(self, published: list[Published]) -> None:
        """From the committing thread to the loop, which has little else to do while the disk is busy."""
        self._call(self._prepare, published)

    def _prepare(self, published: list[Published]) -> None:
        for key, life, batch in published:
            if batch is not None:
                self._hub.prepare(key, life, batch)

    def _hand_over(self, outcome: Outcome) -> None:
        """From the committing thread to the loop."""
        self._call(self._settle, outcome)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _settle(self, outcome: Outcome) -> None:
        """Publish first, then answer: who awaited a commit finds it published."""
        if outcome.news is not None:
            self._learn(outcome.news)
        for key, life, batch in outcome.published:
            if batch is None:
                self._end(key, life)
            else:
                self._hub.publish(key, life, batch)
        for append, newest in outcome.written:
            append.writer.committed(len(append.lines) + append.ended, append.size, newest)
        for append, error in outcome.refused:
            append.writer.failed(error)
        for job, result, error in outcome.answers:
            _answer(job.future, result, error)

    def _end(self, key: ThreadKey, life: str) -> None:
        """That life of the thread was erased."""
        self._hub.erase(key, life)
        for writer in self._writers.values():
            if writer.thread == key and writer.epoch == life:
                writer.failed(LeaseLost())

    def _learn(self, news: News) -> None:
        for key, life in news.erased:
            self._end(key, life)
        for key, life, last in news.grown:
            self._hub.learn(key, life, last)
        for token, reason in news.stops:
            if writer := self._writers.get(token):
                writer.stop(reason)
        for token in self._writers.keys() - news.mine:
            self._writers[token].failed(LeaseLost())
        self._bell.ring_all()


def _set(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _undo(undo: Callable[[T], None] | None, future: asyncio.Future[T]) -> None:
    if future.cancelled() or future.exception() is not None or undo is None:
        return
    undo(future.result())
