"""ThreadedLedger: the loop side of every store that writes on a commit thread. A store adds that thread and its reads.

It submits appends and jobs (`commit_jobs.py`) and opens live readers (`fanout.py`); `commit_outcomes.py` settles what was committed.
Nothing here knows a database.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import LedgerError
from ambient_runner.ledger.buffered_writer import Append, BufferedWriter
from ambient_runner.ledger.commit_jobs import CommitJob, GrantedLease
from ambient_runner.ledger.commit_outcomes import OutcomeSettler
from ambient_runner.ledger.commit_thread import CommitCallbacks
from ambient_runner.ledger.facts import check_facts, check_first_facts
from ambient_runner.ledger.fanout import ChannelRegistry, LiveTail
from ambient_runner.ledger.flush_scheduler import FlushScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.base import Tail, Writer
    from ambient_runner.ledger.commit_thread import CommitThread, WriteCommands
    from ambient_runner.ledger.fanout import Channel
    from ambient_runner.ledger.records import (
        Batch,
        Checkpoint,
        Fact,
        IdempotencyClaim,
        ThreadInfo,
        ThreadKey,
        ThreadLabels,
    )

__all__ = ["ThreadedLedger"]

T = TypeVar("T")

_CLOSED = "The store is closed."
_REGISTER_DELAY = 0.1
"""Seconds after which the readers of a run that has ended here are registered, if they still read the thread."""
_RELEASE_CHECK_INTERVAL = 0.25
"""Seconds between checks if the process that holds the lease has died: it sends no notification."""


class ThreadedLedger(ABC):
    """The writing half of `base.Ledger`, and its live readers."""

    def __init__(self) -> None:
        self._channels = ChannelRegistry(self._start_polling, self._update_polling, self._update_registration)
        self._read_threads: set[ThreadKey] = set()
        """Threads that other processes know this one to read."""
        self._settler = OutcomeSettler(self._channels)
        self._scheduler = FlushScheduler(self.submit_appends)
        self._is_closed = False
        self._writer_channels: dict[BufferedWriter, Channel] = {}

    @abstractmethod
    def _create_commit_thread(self, callbacks: CommitCallbacks) -> CommitThread:
        """Return the commit thread, not started yet."""

    @abstractmethod
    def _find_failure(self) -> LedgerError | None:
        """Return why the last transaction failed; None if it did not. Called by any thread."""

    @abstractmethod
    async def _is_free(self, key: ThreadKey, ticket: int | None) -> bool:
        """Return True if nobody alive holds the thread's lease, and with a ticket if it is also first in the queue."""

    @abstractmethod
    async def get_thread(self, key: ThreadKey) -> ThreadInfo | None: ...

    @abstractmethod
    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]: ...

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[RunnerError | None] = self._loop.create_future()
        self._committer = self._create_commit_thread(
            CommitCallbacks(
                on_opened=partial(self._call_on_loop, _set_result, opened),
                on_uncommitted=partial(self._call_on_loop, self._settler.prepare_batches),
                on_outcome=partial(self._call_on_loop, self._settler.settle),
            )
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

    async def acquire_lease(
        self, key: ThreadKey, run: str, *, claim: IdempotencyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        lease = await self._run_command(
            lambda writes: writes.acquire_lease(key, run, claim, ticket), undo=self._release_unused, is_durable=False
        )
        writer = self._create_writer(key, run, lease, self._channels.open_channel(key))
        if lease.has_thread:
            self._channels.update_last(key, lease.epoch, lease.last)
        return writer

    async def begin_thread(
        self,
        key: ThreadKey,
        run: str,
        facts: Sequence[Fact],
        *,
        epoch: str,
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str = "",
    ) -> Writer:
        check_first_facts(facts)
        channel = self._channels.open_channel(key)  # Before the commit, so that it retains the first entries.
        try:
            lease = await self._run_command(
                lambda writes: writes.begin_thread(key, run, facts, epoch, run_id, agent, claim, title),
                undo=self._release_unused,
            )
        except BaseException:
            self._channels.close_channel(channel)
            raise
        writer = self._create_writer(key, run, lease, channel)
        writer.mark_committed(0, 0, len(facts))
        return writer

    def _create_writer(self, key: ThreadKey, run: str, lease: GrantedLease, channel: Channel) -> BufferedWriter:
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
        self._settler.writers[lease.token] = writer
        self._writer_channels[writer] = channel
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
        return await self._run_command(
            lambda writes: writes.begin_run(writer.token, facts, run_id, agent, claim, title)
        )

    def submit_appends(self, appends: list[Append]) -> None:
        if self._is_closed:
            for append in appends:
                append.writer.mark_failed(LedgerError(_CLOSED))
            return
        self._committer.submit(appends)

    async def release_lease(self, writer: BufferedWriter) -> None:
        channel = self._writer_channels.pop(writer, None)
        if channel is None:
            return
        if writer.token in self._settler.writers:  # Else the end of the run has released it.
            with suppress(LedgerError):  # Closed in the meantime: closing released every lease.
                await self._run_command(
                    lambda writes: writes.release_lease(writer.token), must_succeed=True, is_durable=False
                )
            self._settler.writers.pop(writer.token, None)
        self._channels.close_channel(channel)
        if self._channels.has_readers(writer.thread):
            # Most are about to leave with the run they have read.
            self._loop.call_later(_REGISTER_DELAY, self._update_registration, writer.thread)
        self._settler.release_notifier.notify(writer.thread)

    async def wait_released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        self._start_polling()
        with anyio.move_on_after(timeout):
            try:
                free = partial(self._is_free, key, ticket)
                await self._settler.release_notifier.wait_until_free(key, free, _RELEASE_CHECK_INTERVAL)
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
            self._settler.release_notifier.notify(key)

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        token = await self._run_command(lambda writes: writes.request_stop(key, reason, run), is_durable=False)
        if writer := self._settler.writers.get(token or 0):
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

    def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AbstractAsyncContextManager[Tail]:
        return LiveTail(self._channels, key, after, self.get_thread, self._read_epoch, epoch)

    async def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, *, epoch: str = "") -> None:
        await self._run_command(lambda writes: writes.trim_thread(key, checkpoint, epoch))

    async def erase_thread(self, key: ThreadKey) -> bool:
        if not await self._run_command(lambda writes: writes.erase_thread(key)):
            return False
        self._settler.release_notifier.notify(key)
        return True

    def unavailable_reason(self) -> str | None:
        if self._is_closed or not self._committer.is_alive():
            return _CLOSED
        failure = self._find_failure()
        return failure.message if failure else None

    def pause(self) -> None:
        """Stop renewing leases and polling for changes, as if this process were suspended. For tests of takeover."""
        self._committer.is_paused = True

    async def _read_epoch(self, key: ThreadKey, epoch: str, after: int, limit: int) -> list[Batch]:
        return await self.read_batches(key, after, limit=limit, epoch=epoch)

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
                await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(partial(_undo_result, undo))
            raise
        return future.result()

    def _release_unused(self, lease: GrantedLease) -> None:
        self._submit_later(lambda writes: writes.release_lease(lease.token))

    def _discard_ticket(self, ticket: int) -> None:
        self._submit_later(lambda writes: writes.leave_queue(ticket))

    def _submit_later(self, work: Callable[[WriteCommands], None]) -> None:
        self._committer.submit(CommitJob(work, self._loop.create_future(), must_succeed=True, is_durable=False))

    def _update_registration(self, key: ThreadKey) -> None:
        """Register this process as a reader of a thread, or remove it. It counts the readers of its own runs itself."""
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

    def _start_polling(self) -> None:
        if not self._committer.is_polling:
            self._committer.is_polling = True
            self._committer.wake()

    def _update_polling(self) -> None:
        self._committer.is_polling = bool(self._channels.readers or len(self._settler.release_notifier))

    def _call_on_loop(self, function: Callable[..., None], *args: Any) -> None:
        """Schedule the function on the loop. Called by the commit thread."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _undo_result(undo: Callable[[T], None] | None, future: asyncio.Future[T]) -> None:
    if future.cancelled() or future.exception() is not None or undo is None:
        return
    undo(future.result())
