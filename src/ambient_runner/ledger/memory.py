"""MemoryLedger: the contract in one process, for tests and for runners behind a gateway. Nothing survives it.

It is the twin that proves the contract: same writer, same channels, a dictionary in place of the disk.
"""

from __future__ import annotations

import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import TYPE_CHECKING, Self

import anyio

from ambient_runner.errors import KeyReused, LeaseLost, LedgerError, OtherAgent, StaleCursor, ThreadBusy, UnknownThread
from ambient_runner.ledger.base import (
    KEY_AGE,
    RUNTIME,
    Batch,
    Checkpoint,
    Fact,
    Held,
    KeyClaim,
    KeyUse,
    RunInfo,
    ThreadInfo,
)
from ambient_runner.ledger.buffered_writer import Append, Outbox, QueuedWriter, check_note, same_batch
from ambient_runner.ledger.fanout import Bell, Hub, cut, live_tail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType

    from ambient_runner.ledger.base import Tail, Text, ThreadKey, Writer
    from ambient_runner.ledger.fanout import Channel

_PATIENCE = 3600.0


@dataclass(slots=True, eq=False)
class _Thread:
    agent: str
    epoch: str
    created: int
    updated: int
    floor: int = 0
    last: int = 0
    batches: list[Batch] = field(default_factory=list[Batch])
    runs: dict[str, RunInfo] = field(default_factory=dict[str, RunInfo])
    checkpoint: Checkpoint | None = None


@dataclass(slots=True, eq=False)
class _Lease:
    writer: QueuedWriter
    claim: KeyClaim | None
    channel: Channel


@dataclass(slots=True)
class _Key:
    digest: str
    used: int
    thread: ThreadKey
    run: str


class MemoryLedger:
    """A store without a disk. See `base.Ledger`."""

    def __init__(self) -> None:
        self.url = "memory://"
        self._threads: dict[ThreadKey, _Thread] = {}
        self._leases: dict[ThreadKey, _Lease] = {}
        self._tickets: dict[ThreadKey, list[int]] = {}
        self._keys: dict[str, _Key] = {}
        self._numbers = count(1)
        self._hub = Hub()
        self._bell = Bell()
        self._outbox = Outbox(self.submit)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outbox.flush()
        self._closed = True

    async def acquire(
        self, key: ThreadKey, run: str, *, claim: KeyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        self._check_open()
        if lease := self._leases.get(key):
            raise Held(lease.writer.run, lease.claim)
        if self._before(key, ticket):
            raise Held("", None)
        if ticket is not None:
            self._leave_queue(key, ticket)
        thread = self._threads.get(key)
        known = thread.runs.get(run) if thread else None
        writer = QueuedWriter(
            self,
            self._outbox,
            thread=key,
            run=run,
            epoch=thread.epoch if thread else secrets.token_urlsafe(9),
            token=next(self._numbers),
            last=thread.last if thread else 0,
            begun=known is not None,
            ended=bool(known and known.last),
        )
        self._leases[key] = _Lease(writer, claim, self._hub.open(key))
        if thread:
            self._hub.learn(key, thread.epoch, thread.last)
        return writer

    async def begin(
        self, writer: QueuedWriter, facts: list[Fact], run_id: str, agent: str, claim: KeyClaim | None
    ) -> int:
        self._check_open()
        if not self._holds(writer):
            raise LeaseLost
        thread = self._threads.get(writer.thread)
        if thread and thread.agent != agent:
            raise OtherAgent
        if claim:
            self._claim(writer, claim)
        if thread is None:
            thread = _Thread(agent, writer.epoch, _now(), 0)
            self._threads[writer.thread] = thread
        first = thread.last + 1
        thread.runs[writer.run] = RunInfo(key=writer.run, thread=writer.thread, run_id=run_id, first=first, last=0)
        self._write_facts(writer.thread, thread, writer.run, facts)
        self._touch(writer.thread, thread)
        return first

    def submit(self, appends: list[Append]) -> None:
        for append in appends:
            if self._closed:
                append.writer.failed(LedgerError("The store is closed."))
            elif self._holds(append.writer):
                self._append(append)
            else:
                append.writer.failed(LeaseLost())

    async def release(self, writer: QueuedWriter) -> None:
        if not self._holds(writer):
            return
        lease = self._leases.pop(writer.thread)
        self._hub.close(lease.channel)
        self._bell.ring(writer.thread)

    async def released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        async def free() -> bool:
            return key not in self._leases and (ticket is None or not self._before(key, ticket))

        with anyio.move_on_after(timeout):
            await self._bell.wait(key, free, _PATIENCE)
            return True
        return False

    @asynccontextmanager
    async def queueing(self, key: ThreadKey, *, depth: int) -> AsyncGenerator[int, None]:
        line = self._tickets.setdefault(key, [])
        if len(line) >= depth:
            raise ThreadBusy
        ticket = next(self._numbers)
        line.append(ticket)
        try:
            yield ticket
        finally:
            self._leave_queue(key, ticket)
            self._bell.ring(key)

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        lease = self._leases.get(key)
        if lease is None or (run and lease.writer.run != run):
            return False
        lease.writer.stop(reason)
        return True

    async def note(self, key: ThreadKey, facts: Sequence[Fact], *, expect: int | None = None) -> int:
        check_note(facts)
        self._check_open()
        self._outbox.flush()
        thread = self._thread(key)
        if expect is not None and key in self._leases:
            raise ThreadBusy
        if expect is not None and thread.last != expect:
            raise StaleCursor
        if facts:
            self._write_facts(key, thread, "", facts)
            self._touch(key, thread)
        return thread.last

    async def thread(self, key: ThreadKey) -> ThreadInfo | None:
        thread = self._threads.get(key)
        return self._info(key, thread) if thread else None

    async def threads(
        self, tenant: str, owner: str, *, limit: int = 100, before: int | None = None
    ) -> list[ThreadInfo]:
        mine = [self._info(key, thread) for key, thread in self._threads.items() if key[:2] == (tenant, owner)]
        older = [info for info in mine if before is None or info.updated < before]
        return sorted(older, key=lambda info: -info.updated)[:limit]

    async def run(self, key: ThreadKey, run: str) -> RunInfo | None:
        thread = self._threads.get(key)
        return thread.runs.get(run) if thread else None

    async def run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        thread = self._threads.get(key)
        runs = [run for run in thread.runs.values() if run.first <= seq] if thread else []
        return max(runs, key=lambda run: run.first, default=None)

    async def key_use(self, claim: KeyClaim) -> KeyUse | None:
        use = self._keys.get(claim.scope)
        if use is None or use.used <= _now() - KEY_AGE:
            return None
        return KeyUse(digest=use.digest, thread=use.thread, run=await self.run(use.thread, use.run))

    async def read(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        thread = self._threads.get(key)
        if epoch and (thread is None or thread.epoch != epoch):
            raise UnknownThread
        return _up_to(thread.batches, after, until, limit) if thread else []

    @asynccontextmanager
    async def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AsyncGenerator[Tail, None]:
        async with live_tail(self._hub, key, after, self.thread, self._read_life, epoch) as tail:
            yield tail

    async def abandoned(self) -> list[RunInfo]:
        free = [thread for key, thread in self._threads.items() if key not in self._leases]
        return [run for thread in free for run in thread.runs.values() if not run.last]

    async def checkpoint(self, key: ThreadKey, at: int | None = None) -> Checkpoint | None:
        thread = self._threads.get(key)
        found = thread.checkpoint if thread else None
        return found if found and (at is None or found.seq <= at) else None

    async def trim(self, key: ThreadKey, checkpoint: Checkpoint) -> None:
        self._outbox.flush()
        thread = self._thread(key)
        if checkpoint.seq > thread.last:
            raise ValueError("a checkpoint cannot be ahead of its thread")
        thread.checkpoint = checkpoint
        thread.batches = [cut(batch, checkpoint.seq + 1) for batch in thread.batches if batch.last > checkpoint.seq]
        thread.floor = max(thread.floor, checkpoint.seq)

    async def erase(self, key: ThreadKey) -> bool:
        self._outbox.flush()
        thread = self._threads.pop(key, None)
        if thread is None:
            return False
        for use in self._keys.values():
            if use.thread == key:
                use.run = ""
        if lease := self._leases.pop(key, None):
            lease.writer.failed(LeaseLost())
            self._hub.close(lease.channel)
        self._hub.erase(key, thread.epoch)
        self._bell.ring(key)
        return True

    def _append(self, append: Append) -> None:
        writer, lines, ended = append.writer, append.lines, append.ended
        thread = self._threads[writer.thread]
        info = thread.runs[writer.run]
        if lines:
            self._store(writer.thread, thread, RUNTIME, "", writer.run, lines, append.text)
        newest = thread.last if lines else _newest_of(thread, writer.run)
        if ended:
            thread.runs[writer.run] = replace(info, last=newest)
            self._touch(writer.thread, thread)
        writer.committed(len(lines) + ended, append.size, newest)

    def _write_facts(self, key: ThreadKey, thread: _Thread, run: str, facts: Sequence[Fact]) -> None:
        for (owner, kind), group in groupby(facts, same_batch):
            self._store(key, thread, owner, kind, run, [fact.body for fact in group])

    def _store(
        self,
        key: ThreadKey,
        thread: _Thread,
        owner: str,
        kind: str,
        run: str,
        lines: list[bytes],
        text: Text | None = None,
    ) -> None:
        batch = Batch(first=thread.last + 1, owner=owner, kind=kind, run=run, ts=_now(), lines=lines, text=text)
        thread.batches.append(batch)
        thread.last = batch.last
        self._hub.publish(key, thread.epoch, batch)

    async def _read_life(self, key: ThreadKey, life: str, after: int) -> list[Batch]:
        return await self.read(key, after, epoch=life)

    def _claim(self, writer: QueuedWriter, claim: KeyClaim) -> None:
        now = _now()
        self._keys = {scope: use for scope, use in self._keys.items() if use.used > now - KEY_AGE}
        if claim.scope in self._keys:
            raise KeyReused
        self._keys[claim.scope] = _Key(claim.digest, now, writer.thread, writer.run)

    def _info(self, key: ThreadKey, thread: _Thread) -> ThreadInfo:
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
        )

    def _touch(self, key: ThreadKey, thread: _Thread) -> None:
        same_owner = (other.updated for other_key, other in self._threads.items() if other_key[:2] == key[:2])
        thread.updated = max(_now(), max(same_owner) + 1)

    def _thread(self, key: ThreadKey) -> _Thread:
        thread = self._threads.get(key)
        if thread is None:
            raise UnknownThread
        return thread

    def _holds(self, writer: QueuedWriter) -> bool:
        lease = self._leases.get(writer.thread)
        return lease is not None and lease.writer is writer

    def _before(self, key: ThreadKey, ticket: int | None) -> bool:
        return any(ticket is None or other < ticket for other in self._tickets.get(key, ()))

    def _leave_queue(self, key: ThreadKey, ticket: int) -> None:
        line = self._tickets.get(key, [])
        if ticket in line:
            line.remove(ticket)
        if not line:
            self._tickets.pop(key, None)

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerError("The store is closed.")


def _up_to(batches: list[Batch], after: int, until: int | None, limit: int) -> list[Batch]:
    found: list[Batch] = []
    size = 0
    for batch in batches:
        if batch.last <= after:
            continue
        if size >= limit or (until is not None and max(batch.first, after + 1) > until):
            break
        found.append(cut(batch, after + 1, until))
        size += sum(map(len, batch.lines))
    return found


def _newest_of(thread: _Thread, run: str) -> int:
    return next((batch.last for batch in reversed(thread.batches) if batch.run == run), thread.last)


def _now() -> int:
    return time.time_ns() // 1_000_000
