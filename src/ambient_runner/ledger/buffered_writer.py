"""The Writer all stores share: it buffers on the event loop, submits the buffer when the producer pauses, and counts commits.

This is the hot path from event to disk: `append` is a list append and a few counters. A store implements `WriterBackend`.
The lines of a producer that does not pause are submitted in batches that start small, so that a run's first events are published at once,
and grow. The producer continues meanwhile, up to 4,096 entries ahead of the disk, and then waits.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from ambient_runner.errors import LedgerError, RunnerError, copy_error
from ambient_runner.ledger.facts import LINE_BREAK, check_first_facts, check_line
from ambient_runner.ledger.flush_scheduler import MAX_BATCH_LINES
from ambient_runner.ledger.records import join_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized
    from types import TracebackType

    from ambient_runner.ledger.base import DeferredEncoder
    from ambient_runner.ledger.flush_scheduler import FlushScheduler
    from ambient_runner.ledger.records import (
        CheckpointUpdate,
        Fact,
        IdempotencyClaim,
        JoinedText,
        ThreadKey,
        ThreadStatus,
    )

MAX_QUEUED_ENTRIES = 4096
"""Uncommitted entries of a writer from which on its producer must wait."""
MAX_QUEUED_BYTES = 1 << 20
"""Bytes of uncommitted entries from which on its producer must wait."""
_FIRST_BATCH_LINES = 16
"""Lines of the first batch that is submitted of a producer that does not pause. The next ones grow, up to `MAX_BATCH_LINES`."""
_MAX_BUFFERED_SECONDS = 0.05
"""Seconds after which a batch is submitted that is not full, of a producer that does not pause: a slow one keeps its readers waiting."""


class Append(NamedTuple):
    """Lines that one writer submits to the store; with `end_status` the run ends at the last of them, and its lease is released."""

    writer: BufferedWriter
    lines: list[bytes]
    size: int
    """Bytes of all lines."""
    text: JoinedText | None
    """The joined text of the lines, if it is known."""
    events: list[object]
    """As `Batch.events`."""
    end_status: ThreadStatus | None
    """The thread's status from the end of the run on; None if the run goes on."""
    checkpoint: CheckpointUpdate | None = None
    """The checkpoint to write with the end of the run."""

    @property
    def entry_count(self) -> int:
        """Number of queued entries; the end of the run counts as one."""
        return len(self.lines) + (self.end_status is not None)


class WriterBackend(Protocol):
    """The operations a store implements for its writers. It reports results by calling `mark_committed` or `mark_failed` on the loop."""

    async def begin_run(
        self,
        writer: BufferedWriter,
        facts: list[Fact],
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str,
    ) -> int: ...
    def submit_appends(self, appends: list[Append]) -> None: ...
    async def release_lease(self, writer: BufferedWriter) -> None:
        """Release the lease, also in a cancelled scope; nothing if the end of the run has released it."""
        ...


class BufferedWriter:
    """The Writer of every store. See `base.Writer`."""

    def __init__(
        self,
        backend: WriterBackend,
        scheduler: FlushScheduler,
        *,
        thread: ThreadKey,
        run: str,
        epoch: str,
        token: int,
        last: int,
        has_begun: bool,
        has_ended: bool,
    ) -> None:
        self.thread = thread
        self.run = run
        self.epoch = epoch
        self.token = token
        self.last = last
        self.has_ended = has_ended
        self._backend = backend
        self._scheduler = scheduler
        self._has_begun = has_begun
        self._refusal = _first_refusal(has_begun, has_ended)
        self._lines: list[bytes] = []
        self._texts: list[JoinedText] | None = []
        """The joined texts of the lines, of one message; None if a line has none."""
        self._events: list[object] = []
        """As `Batch.events`."""
        self._deferred: DeferredEncoder | None = None
        """Called back by `_encode_deferred` before the lines are needed."""
        self._pending: Sized = ()
        """The events that it will encode, if their number is known."""
        self._is_dirty = False
        self._dirty_since = 0.0
        self._end_status: ThreadStatus | None = None
        """Status to end the run with; None if its end is not queued."""
        self._has_end_mark = False
        self._checkpoint: CheckpointUpdate | None = None
        self._newest = 0
        self._queued = 0
        self._queued_at_last_check = 0
        self._committed = 0
        self._uncommitted_bytes = 0
        self._buffered_bytes = 0
        self._submitted_bytes = 0
        self._batch_lines = _FIRST_BATCH_LINES
        self._commit_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._stop_reason: str | None = None
        self._stop_waiters: set[asyncio.Future[str]] = set()
        self._watcher: tuple[Callable[[str], None], Callable[[LedgerError], None]] | None = None

    @property
    def appended_count(self) -> int:
        return self._queued - self._has_end_mark

    @property
    def appended_bytes(self) -> int:
        return self._submitted_bytes + self._buffered_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.flush()
        self._watcher = None
        if self._refusal is None:
            self._refusal = RuntimeError("This lease was released. Acquire a new one.")
        await self._backend.release_lease(self)

    async def begin_run(
        self, facts: Iterable[Fact], *, run_id: str, agent: str, claim: IdempotencyClaim | None, title: str = ""
    ) -> int:
        if self._has_begun or isinstance(self._refusal, RunnerError):
            raise copy_error(self._refusal or RuntimeError("This run has already begun."))
        listed = list(facts)
        check_first_facts(listed)
        first = await self._backend.begin_run(self, listed, run_id, agent, claim, title)
        self._has_begun = True
        self._newest = first + len(listed) - 1
        if isinstance(self._refusal, RuntimeError):
            self._refusal = None
        return first

    def append(self, line: bytes) -> None:
        if self._refusal is not None:
            raise copy_error(self._refusal)
        if LINE_BREAK in line:  # Nearly all events come here: the call is only for the error.
            check_line(line)
        if self._deferred is not None:
            self._encode_deferred()
        self._lines.append(line)
        self._texts = None
        self._events.append(line)
        self._queued += 1
        size = len(line)
        self._uncommitted_bytes += size
        self._buffered_bytes += size
        if not self._is_dirty:
            self._mark_dirty(self._queued - 1)

    def append_lazily(self, encode: DeferredEncoder, pending: Sized = ()) -> None:
        if self._refusal is not None:
            raise copy_error(self._refusal)
        if self._deferred is not None:
            self._encode_deferred()
        self._deferred, self._pending = encode, pending
        if not self._is_dirty:
            self._mark_dirty(self._queued)

    def _mark_dirty(self, submitted: int) -> None:
        """Register the buffer with the scheduler. Its first check submits the first entry, so that it is published at once.

        While earlier entries are being committed, the entry has to wait for them anyway: then the first check only notes it, so that an
        agent that awaits something after each entry makes few batches.
        """
        self._is_dirty = True
        self._dirty_since = time.monotonic()
        self._queued_at_last_check = submitted + (submitted == self._committed)
        self._scheduler.add_writer(self)

    def is_full(self) -> bool:
        return self._queued - self._committed >= MAX_QUEUED_ENTRIES or self._uncommitted_bytes >= MAX_QUEUED_BYTES

    async def wait_for_capacity(self) -> None:
        while self.is_full():
            await self._wait_committed(behind=MAX_QUEUED_ENTRIES // 2)

    async def flush(self) -> int:
        await self._wait_committed()
        return self._newest

    async def finish_run(
        self, status: ThreadStatus = "finished", *, checkpoint: CheckpointUpdate | None = None
    ) -> None:
        if self._refusal is not None:
            raise copy_error(self._refusal)
        if checkpoint is not None and checkpoint.seq > max(self._newest, self.last):
            raise ValueError("A checkpoint cannot be ahead of its thread.")
        self._end_status, self._checkpoint = status, checkpoint
        self._encode_deferred()
        # The end mark counts as one more entry, so that `_wait_committed` waits for it too.
        self._queued += 1
        self._has_end_mark = True
        if not self._is_dirty:
            self._is_dirty, self._dirty_since = True, 0.0  # The first check submits the end: nothing follows it.
            self._scheduler.add_writer(self)
        self._refusal = RuntimeError("This run has ended.")
        await self._wait_committed()

    async def wait_for_stop(self) -> str:
        if self._stop_reason is not None:
            return self._stop_reason
        if isinstance(self._refusal, RunnerError):
            raise copy_error(self._refusal)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stop_waiters.add(future)
        try:
            return await future
        finally:
            self._stop_waiters.discard(future)

    def watch_for_stop(self, on_stop: Callable[[str], None], on_failure: Callable[[LedgerError], None]) -> None:
        self._watcher = on_stop, on_failure
        if self._stop_reason is not None:
            on_stop(self._stop_reason)
        elif isinstance(self._refusal, LedgerError):
            on_failure(self._refusal)

    def is_ready(self, max_lines: int) -> bool:
        """For the scheduler: return True if nothing was queued since the last check, or if the buffer holds a full batch or an old line.

        A full batch has `max_lines` at most.
        """
        if not self._pending:
            self._encode_deferred()
        pending = len(self._pending)
        queued = self._queued + pending
        buffered = len(self._lines) + pending
        is_ready = (
            queued == self._queued_at_last_check
            or buffered >= min(self._batch_lines, max_lines)
            or time.monotonic() - self._dirty_since >= _MAX_BUFFERED_SECONDS
        )
        self._queued_at_last_check = queued
        return is_ready

    def take_queued(self) -> Append:
        """For the scheduler: return what is queued, and empty the buffer."""
        self._encode_deferred()
        lines, self._lines = self._lines, []
        size, self._buffered_bytes = self._buffered_bytes, 0
        texts, self._texts = self._texts, []
        events, self._events = self._events, []
        if len(lines) >= self._batch_lines:
            self._batch_lines = min(MAX_BATCH_LINES, self._batch_lines * 4)
        self._submitted_bytes += size
        end_status, self._end_status = self._end_status, None
        self._is_dirty = False
        text = join_texts(texts) if texts else None
        checkpoint = self._checkpoint if end_status is not None else None
        return Append(self, lines, size, text, events, end_status, checkpoint)

    def mark_committed(self, count: int, size: int, newest: int) -> None:
        """For the store: record that `count` queued entries of `size` bytes are on disk and published."""
        self._committed += count
        self._uncommitted_bytes -= size
        self._newest = max(self._newest, newest)
        if self._commit_waiters:
            self._resolve_waiters()

    def mark_failed(self, error: LedgerError) -> None:
        """For the store: drop what is queued and refuse further appends. A gap in a run would be worse than its end."""
        if isinstance(self._refusal, RunnerError):
            return
        self._refusal = error
        self._encode_deferred()  # So that the producer that defers lines starts a new buffer, and its next append raises.
        self._lines.clear()
        self._events.clear()
        self._uncommitted_bytes = self._buffered_bytes = 0
        for _, future in self._commit_waiters:
            if not future.done():
                future.set_result(None)
        self._commit_waiters.clear()
        for future in self._stop_waiters:
            if not future.done():
                future.set_exception(copy_error(error))
        if self._watcher is not None:
            self._watcher[1](error)

    def signal_stop(self, reason: str) -> None:
        """For the store: wake `wait_for_stop`. The first reason wins."""
        if self._stop_reason is not None:
            return
        self._stop_reason = reason
        for future in self._stop_waiters:
            if not future.done():
                future.set_result(reason)
        if self._watcher is not None:
            self._watcher[0](reason)

    def _encode_deferred(self) -> None:
        """Call the producer's encoder back, if one is registered, and queue its lines."""
        encode, self._deferred, self._pending = self._deferred, None, ()
        if encode is not None:
            lines, text, events = encode()
            if lines:
                self._add_text(text)
                self._events += events or lines
            self._lines += lines
            self._queued += len(lines)
            size = sum(map(len, lines))
            self._uncommitted_bytes += size
            self._buffered_bytes += size

    def _add_text(self, text: JoinedText | None) -> None:
        """Record the joined text of more lines. Texts are joined once for all lines: joined one by one, they are copied each time."""
        known = self._texts
        if known is None or text is None or (known and known[0].message_id != text.message_id):
            self._texts = None
        else:
            known.append(text)

    async def _wait_committed(self, behind: int = 0) -> None:
        """Wait until all but the last `behind` queued entries are on disk; all of them if their bytes have reached the limit."""
        if self._is_dirty:
            self._scheduler.flush()
        target = self._queued if self._uncommitted_bytes >= MAX_QUEUED_BYTES else self._queued - behind
        if self._committed < target and not isinstance(self._refusal, RunnerError):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._commit_waiters.append((target, future))
            await future
        if isinstance(self._refusal, RunnerError):
            raise copy_error(self._refusal)

    def _resolve_waiters(self) -> None:
        remaining: list[tuple[int, asyncio.Future[None]]] = []
        for target, future in self._commit_waiters:
            if target > self._committed:
                remaining.append((target, future))
            elif not future.done():
                future.set_result(None)
        self._commit_waiters = remaining


def _first_refusal(has_begun: bool, has_ended: bool) -> RunnerError | RuntimeError | None:
    if has_ended:
        return RuntimeError("This run has ended.")
    return None if has_begun else RuntimeError("Call begin_run first.")
