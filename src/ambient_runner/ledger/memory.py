"""MemoryLedger: the contract in one process, for tests and for runners behind a gateway. Nothing survives it.

It is the second implementation that proves the contract: same writer, same channels, a dictionary in place of the disk.
"""

from __future__ import annotations

import random
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, NamedTuple, Self

import anyio

from ambient_runner.errors import (
    AgentMismatch,
    ConfigError,
    IdempotencyConflict,
    LeaseLost,
    LedgerError,
    StaleCursor,
    ThreadBusy,
    ThreadExists,
    UnknownThread,
)
from ambient_runner.ledger.base import LeaseHeld
from ambient_runner.ledger.batches import slice_batch, take_batches
from ambient_runner.ledger.buffered_writer import Append, BufferedWriter
from ambient_runner.ledger.facts import batch_key, check_facts
from ambient_runner.ledger.fanout import ChannelRegistry, LiveTail
from ambient_runner.ledger.flush_scheduler import FlushScheduler
from ambient_runner.ledger.records import (
    IDEMPOTENCY_KEY_TTL_MS,
    RUNTIME,
    Batch,
    Checkpoint,
    CheckpointPart,
    Fact,
    IdempotencyClaim,
    IdempotencyRecord,
    RunInfo,
    ThreadInfo,
    ThreadLabels,
    new_epoch,
)
from ambient_runner.ledger.release_notifier import ReleaseNotifier
from ambient_runner.ledger.thread_changes import POSITIONS_PER_MS, ChangeOrder, collect_changes
from ambient_runner.ledger.thread_search import ThreadFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ambient_runner.ledger.base import Ledger, StoreSettings, Tail, Writer
    from ambient_runner.ledger.fanout import Channel
    from ambient_runner.ledger.records import (
        ArchivedFilter,
        ChangedThreads,
        CheckpointUpdate,
        JoinedText,
        ThreadKey,
        ThreadStatus,
    )

_RELEASE_CHECK_INTERVAL = 3600.0
"""Seconds between checks if a lease is free. Every release is notified here, so they find nothing."""


def open_memory_store(url: str, settings: StoreSettings) -> Ledger:
    """Return the store of `memory://`. Raises: ConfigError."""
    if url != "memory://":
        raise ConfigError("A memory store has no path: write memory://.")
    return MemoryLedger()


@dataclass(slots=True, eq=False)
class _StoredThread:
    agent: str
    epoch: str
    created: int
    updated: int = 0
    changed: int = 0
    """Position in the order of all changes."""
    title: str = ""
    archived: bool = False
    status: ThreadStatus = "running"
    floor: int = 0
    last: int = 0
    batches: list[Batch] = field(default_factory=list[Batch])
    runs: dict[str, RunInfo] = field(default_factory=dict[str, RunInfo])
    checkpoint: Checkpoint | None = None
    """The one in place of the dropped entries."""
    newest_checkpoint: Checkpoint | None = None


@dataclass(slots=True, eq=False)
class _HeldLease:
    writer: BufferedWriter
    claim: IdempotencyClaim | None
    channel: Channel


class _Tombstone(NamedTuple):
    key: ThreadKey
    at: int
    changed: int


@dataclass(slots=True)
class _UsedKey:
    digest: str
    used: int
    thread: ThreadKey
    run: str


class MemoryLedger:
    """A store in memory. See `base.Ledger`."""

    def __init__(self) -> None:
        self.url = "memory://"
        self._threads: dict[ThreadKey, _StoredThread] = {}
        self._leases: dict[ThreadKey, _HeldLease] = {}
        self._tickets: dict[ThreadKey, list[int]] = {}
        self._keys: dict[str, _UsedKey] = {}
        self._tombstones: list[_Tombstone] = []
        self._change_order = ChangeOrder(secrets.token_hex(6), 0, 0)
        self._numbers = count(1)
        self._channels = ChannelRegistry()
        self._release_notifier = ReleaseNotifier()
        self._scheduler = FlushScheduler(self.submit_appends)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.flush()
        self._is_closed = True

    async def acquire_lease(
        self, key: ThreadKey, run: str, *, claim: IdempotencyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        return self._acquire(key, run, claim, ticket, new_epoch())

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
        if key in self._threads:
            raise ThreadExists
        writer = self._acquire(key, run, claim, None, epoch)
        try:
            await writer.begin_run(facts, run_id=run_id, agent=agent, claim=claim, title=title)
        except BaseException:
            self._release(key)
            raise
        return writer

    def _acquire(
        self, key: ThreadKey, run: str, claim: IdempotencyClaim | None, ticket: int | None, epoch: str
    ) -> BufferedWriter:
        """Return the lease of the thread; `epoch` is that of a thread that does not exist yet."""
        self._check_open()
        if lease := self._leases.get(key):
            raise LeaseHeld(lease.writer.run, lease.claim)
        if self._has_earlier_ticket(key, ticket):
            raise LeaseHeld("", None)
        if ticket is not None:
            self._leave_queue(key, ticket)
        thread = self._threads.get(key)
        known = thread.runs.get(run) if thread else None
        writer = BufferedWriter(
            self,
            self._scheduler,
            thread=key,
            run=run,
            epoch=thread.epoch if thread else epoch,
            token=next(self._numbers),
            last=thread.last if thread else 0,
            has_begun=known is not None,
            has_ended=bool(known and known.last),
        )
        self._leases[key] = _HeldLease(writer, claim, self._channels.open_channel(key))
        if thread:
            self._channels.update_last(key, thread.epoch, thread.last)
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
        self._check_open()
        if not self._holds_lease(writer):
            raise LeaseLost
        thread = self._threads.get(writer.thread)
        if thread and thread.agent != agent:
            raise AgentMismatch
        if claim:
            self._claim_key(writer.thread, writer.run, claim)
        if thread is None:
            thread = _StoredThread(agent, writer.epoch, _now_ms())
            self._threads[writer.thread] = thread
        first = thread.last + 1
        thread.runs[writer.run] = RunInfo(key=writer.run, thread=writer.thread, run_id=run_id, first=first, last=0)
        self._write_facts(writer.thread, thread, writer.run, facts)
        if first == 1:
            thread.created = thread.batches[0].ts
        self._touch_thread(thread, ThreadLabels(status="running", title=thread.title or title))
        return first

    def submit_appends(self, appends: list[Append]) -> None:
        for append in appends:
            if self._is_closed:
                append.writer.mark_failed(LedgerError("The store is closed."))
            elif self._holds_lease(append.writer):
                self._append_lines(append)
            else:
                append.writer.mark_failed(LeaseLost())

    async def release_lease(self, writer: BufferedWriter) -> None:
        if self._holds_lease(writer):
            self._release(writer.thread)

    async def wait_released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        async def is_free() -> bool:
            return key not in self._leases and (ticket is None or not self._has_earlier_ticket(key, ticket))

        with anyio.move_on_after(timeout):
            await self._release_notifier.wait_until_free(key, is_free, _RELEASE_CHECK_INTERVAL)
            return True
        return False

    @asynccontextmanager
    async def queue_ticket(self, key: ThreadKey, *, depth: int) -> AsyncGenerator[int, None]:
        queue = self._tickets.setdefault(key, [])
        if len(queue) >= depth:
            raise ThreadBusy
        ticket = next(self._numbers)
        queue.append(ticket)
        try:
            yield ticket
        finally:
            self._leave_queue(key, ticket)
            self._release_notifier.notify(key)

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        lease = self._leases.get(key)
        if lease is None or (run and lease.writer.run != run):
            return False
        lease.writer.signal_stop(reason)
        return True

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
        self._check_open()
        self._scheduler.flush()
        thread = self._require_thread(key)
        if expect is not None and key in self._leases:
            raise ThreadBusy
        if expect is not None and thread.last != expect:
            raise StaleCursor
        if claim:
            self._claim_key(key, "", claim)
        if facts:
            self._write_facts(key, thread, "", facts)
            self._touch_thread(thread, labels)
        return thread.last

    async def get_thread(self, key: ThreadKey) -> ThreadInfo | None:
        thread = self._threads.get(key)
        return self._thread_info(key, thread) if thread else None

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
        end = None if before is None else self._change_order.parse_cursor(before)
        wanted = ThreadFilter(agents=agents, statuses=statuses, archived=archived, search=search)
        owned = reversed(self._owned_threads(tenant, owner))
        found = (info for position, info in owned if (end is None or position < end) and wanted.matches(info))
        return list(islice(found, limit))

    async def list_changed_threads(
        self, tenant: str, owner: str, *, after: str | None, limit: int = 100
    ) -> ChangedThreads:
        order = self._change_order
        threads = self._owned_threads(tenant, owner)
        erased = [(stone.changed, stone.key.id) for stone in self._tombstones if stone.key[:2] == (tenant, owner)]
        if after is None:
            newest = max((position for position, _ in (*threads, *erased)), default=0)
            return collect_changes(order, newest, (), (), limit)
        start = order.parse_change_cursor(after)
        return collect_changes(
            order,
            start,
            [(position, info) for position, info in threads if position > start][: limit + 1],
            [(position, thread_id) for position, thread_id in erased if position > start][: limit + 1],
            limit,
        )

    async def list_active_threads(self, tenant: str, owner: str) -> list[ThreadKey]:
        return [key for key in self._leases if key[:2] == (tenant, owner)]

    async def list_all_threads(self, *, limit: int = 100) -> list[ThreadInfo]:
        newest_first = sorted(self._threads.items(), key=lambda item: -item[1].changed)
        return [self._thread_info(key, thread) for key, thread in newest_first[:limit]]

    async def get_run(self, key: ThreadKey, run: str) -> RunInfo | None:
        thread = self._threads.get(key)
        return thread.runs.get(run) if thread else None

    async def list_runs(self, key: ThreadKey, *, limit: int = 100, before: int | None = None) -> list[RunInfo]:
        thread = self._threads.get(key)
        runs = sorted(thread.runs.values(), key=lambda run: -run.first) if thread else []
        return [run for run in runs if before is None or run.first < before][:limit]

    async def find_run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        thread = self._threads.get(key)
        runs = [run for run in thread.runs.values() if run.first <= seq] if thread else []
        return max(runs, key=lambda run: run.first, default=None)

    async def find_idempotency_record(self, tenant: str, claim: IdempotencyClaim) -> IdempotencyRecord | None:
        use = self._keys.get(claim.scope)
        if use is None or use.thread.tenant != tenant or use.used <= _now_ms() - IDEMPOTENCY_KEY_TTL_MS:
            return None
        return IdempotencyRecord(digest=use.digest, thread=use.thread, run=await self.get_run(use.thread, use.run))

    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        thread = self._threads.get(key)
        if epoch and (thread is None or thread.epoch != epoch):
            raise UnknownThread
        return _slice_batches(thread.batches, after, until, limit) if thread else []

    def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AbstractAsyncContextManager[Tail]:
        return LiveTail(self._channels, key, after, self.get_thread, self._read_epoch, epoch)

    async def list_abandoned_runs(self, *, limit: int = 100) -> list[RunInfo]:
        free = [thread for key, thread in self._threads.items() if key not in self._leases]
        found = [run for thread in free for run in thread.runs.values() if not run.last]
        return random.sample(found, min(limit, len(found)))

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        thread = self._threads.get(key)
        if thread is None or epoch not in ("", thread.epoch):
            return None
        stored = [found for found in (thread.checkpoint, thread.newest_checkpoint) if found is not None]
        usable = [found for found in stored if at is None or found.seq <= at]
        return max(usable, key=lambda found: found.seq, default=None)

    async def list_checkpoint_parts(self, key: ThreadKey) -> list[int]:
        thread = self._threads.get(key)
        newest = thread.newest_checkpoint if thread else None
        return [part.seq for part in newest.parts] if newest else []

    async def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, *, epoch: str = "") -> None:
        self._scheduler.flush()
        thread = self._require_thread(key)
        if epoch not in ("", thread.epoch):
            raise UnknownThread
        if checkpoint.seq > thread.last:
            raise ValueError("A checkpoint cannot be ahead of its thread.")
        if checkpoint.seq <= thread.floor:
            return
        thread.checkpoint = checkpoint
        if thread.newest_checkpoint is not None and thread.newest_checkpoint.seq <= checkpoint.seq:
            thread.newest_checkpoint = None  # The entries after it are gone.
        thread.batches = [
            slice_batch(batch, checkpoint.seq + 1) for batch in thread.batches if batch.last > checkpoint.seq
        ]
        thread.floor = checkpoint.seq

    async def erase_thread(self, key: ThreadKey) -> bool:
        self._scheduler.flush()
        thread = self._threads.pop(key, None)
        if thread is None:
            return False
        self._leave_tombstone(key)
        for use in self._keys.values():
            if use.thread == key:
                use.run = ""
        if lease := self._leases.pop(key, None):
            lease.writer.mark_failed(LeaseLost())
            self._channels.close_channel(lease.channel)
        self._channels.end_readers(key, thread.epoch)
        self._release_notifier.notify(key)
        return True

    def unavailable_reason(self) -> str | None:
        return "The store is closed." if self._is_closed else None

    def _release(self, key: ThreadKey) -> None:
        lease = self._leases.pop(key)
        self._channels.close_channel(lease.channel)
        self._release_notifier.notify(key)

    def _append_lines(self, append: Append) -> None:
        writer, lines = append.writer, append.lines
        thread = self._threads[writer.thread]
        info = thread.runs[writer.run]
        if lines:
            self._store_batch(writer.thread, thread, RUNTIME, "", writer.run, lines, append.text)
        newest = thread.last if lines else _newest_seq_of_run(thread, writer.run)
        if append.end_status is not None:
            thread.runs[writer.run] = replace(info, last=newest)
            self._touch_thread(thread, ThreadLabels(status=append.end_status))
            if append.checkpoint is not None:
                _store_checkpoint(thread, append.checkpoint)
            self._release(writer.thread)
        writer.mark_committed(append.entry_count, append.size, newest)

    def _write_facts(self, key: ThreadKey, thread: _StoredThread, run: str, facts: Sequence[Fact]) -> None:
        for (owner, kind), group in groupby(facts, batch_key):
            self._store_batch(key, thread, owner, kind, run, [fact.body for fact in group])

    def _store_batch(
        self,
        key: ThreadKey,
        thread: _StoredThread,
        owner: str,
        kind: str,
        run: str,
        lines: list[bytes],
        text: JoinedText | None = None,
    ) -> None:
        batch = Batch(first=thread.last + 1, owner=owner, kind=kind, run=run, ts=_now_ms(), lines=lines, text=text)
        thread.batches.append(batch)
        thread.last = batch.last
        self._channels.publish(key, thread.epoch, batch)

    async def _read_epoch(self, key: ThreadKey, epoch: str, after: int, limit: int) -> list[Batch]:
        return await self.read_batches(key, after, limit=limit, epoch=epoch)

    def _claim_key(self, key: ThreadKey, run: str, claim: IdempotencyClaim) -> None:
        now = _now_ms()
        self._keys = {scope: use for scope, use in self._keys.items() if use.used > now - IDEMPOTENCY_KEY_TTL_MS}
        if claim.scope in self._keys:
            raise IdempotencyConflict
        self._keys[claim.scope] = _UsedKey(claim.digest, now, key, run)

    def _thread_info(self, key: ThreadKey, thread: _StoredThread) -> ThreadInfo:
        lease = self._leases.get(key)
        return ThreadInfo(
            key=key,
            agent=thread.agent,
            epoch=thread.epoch,
            created=thread.created,
            updated=thread.updated,
            first=thread.floor + 1,
            last=thread.last,
            active=lease.writer.run if lease else "",
            queued=len(self._tickets.get(key, ())),
            readers=int(lease is None and self._channels.has_readers(key)),
            title=thread.title,
            archived=thread.archived,
            status=thread.status,
            cursor=self._change_order.to_cursor(thread.changed),
        )

    def _owned_threads(self, tenant: str, owner: str) -> list[tuple[int, ThreadInfo]]:
        """Return the owner's threads with their positions, the oldest change first."""
        owned = [item for item in self._threads.items() if item[0][:2] == (tenant, owner)]
        owned.sort(key=lambda item: item[1].changed)
        return [(thread.changed, self._thread_info(key, thread)) for key, thread in owned]

    def _touch_thread(self, thread: _StoredThread, labels: ThreadLabels | None = None) -> None:
        """Record a change of the thread by its newest entries, with its new labels if there are any."""
        thread.updated = thread.batches[-1].ts if thread.batches else _now_ms()
        thread.changed = self._next_position(thread.updated)
        if labels is not None:
            thread.title = thread.title if labels.title is None else labels.title
            thread.archived = thread.archived if labels.archived is None else labels.archived
            thread.status = labels.status or thread.status

    def _next_position(self, now: int) -> int:
        newest = max(now * POSITIONS_PER_MS, self._change_order.newest + 1)
        self._change_order = self._change_order._replace(newest=newest)
        return newest

    def _leave_tombstone(self, key: ThreadKey) -> None:
        now = _now_ms()
        old = [stone.changed for stone in self._tombstones if stone.at < now - IDEMPOTENCY_KEY_TTL_MS]
        dropped = max([self._change_order.dropped, *old])
        self._change_order = self._change_order._replace(dropped=dropped)
        self._tombstones = [stone for stone in self._tombstones if stone.changed > dropped]
        self._tombstones.append(_Tombstone(key, now, self._next_position(now)))

    def _require_thread(self, key: ThreadKey) -> _StoredThread:
        thread = self._threads.get(key)
        if thread is None:
            raise UnknownThread
        return thread

    def _holds_lease(self, writer: BufferedWriter) -> bool:
        lease = self._leases.get(writer.thread)
        return lease is not None and lease.writer is writer

    def _has_earlier_ticket(self, key: ThreadKey, ticket: int | None) -> bool:
        return any(ticket is None or other < ticket for other in self._tickets.get(key, ()))

    def _leave_queue(self, key: ThreadKey, ticket: int) -> None:
        queue = self._tickets.get(key, [])
        if ticket in queue:
            queue.remove(ticket)
        if not queue:
            self._tickets.pop(key, None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LedgerError("The store is closed.")


def _slice_batches(batches: list[Batch], after: int, until: int | None, limit: int) -> list[Batch]:
    end = until if until is not None else batches[-1].last if batches else 0
    wanted = (batch for batch in batches if batch.last > after and batch.first <= end)
    return take_batches((slice_batch(batch, after + 1, end) for batch in wanted), limit) if after < end else []


def _newest_seq_of_run(thread: _StoredThread, run: str) -> int:
    return next((batch.last for batch in reversed(thread.batches) if batch.run == run), thread.last)


def _store_checkpoint(thread: _StoredThread, checkpoint: CheckpointUpdate) -> None:
    """Store the newest checkpoint. It is left out if it needs parts that are not there: folds then start at an earlier one."""
    stored = thread.newest_checkpoint.parts if thread.newest_checkpoint else ()
    kept = stored[: len(checkpoint.kept_parts)]
    if tuple(part.seq for part in kept) != checkpoint.kept_parts:
        return
    added = [CheckpointPart(checkpoint.seq, checkpoint.new_part)] if checkpoint.new_part else []
    thread.newest_checkpoint = Checkpoint(seq=checkpoint.seq, body=checkpoint.body, parts=(*kept, *added))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
