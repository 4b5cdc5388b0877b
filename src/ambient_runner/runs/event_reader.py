"""Reading runs as decoded events, for the CLI and tests. The HTTP routes send stored bytes instead (`server/event_stream.py`)."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.errors import EntriesDropped
from ambient_runner.ledger.records import RUNTIME
from ambient_runner.ledger.thread_damage import report_decode_errors
from ambient_runner.projections.private_entries import is_private
from ambient_runner.protocol.events import RunError, RunFinished, decode_event, without_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import Batch, RunInfo, ThreadInfo, ThreadKey
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started


_MAX_FACTS_BEFORE_START = 3
"""Facts before the RUN_STARTED of a run, at most: the copy of a fork, the input, a rewind."""
_START_BYTES = 1 << 16
"""Bytes of a read for the start of a run: RUN_STARTED is among them unless its input is large."""


async def follow_batches(ledger: Ledger, key: ThreadKey, after: int = 0) -> AsyncGenerator[Batch, None]:
    """Yield every batch of a thread after a seq, then live ones. Never ends by itself. Raises: as `Tail.next_batches`."""
    async with ledger.tail(key, after) as tail:
        while True:
            for batch in await tail.next_batches():
                yield batch


async def follow_run(ledger: Ledger, started: Started) -> AsyncGenerator[Event, None]:
    """Yield the events of one run, up to and including its terminal event.

    Raises: EntriesDropped if the rest of the run is no longer retained; UnknownThread if it was erased; LedgerError.
    """
    async with aclosing(follow_batches(ledger, started.thread, started.after)) as batches:
        async for batch in batches:
            if batch.run != started.run or batch.owner != RUNTIME:
                continue
            for line in batch.lines:
                event = decode_event(line)
                if not is_private(event):
                    yield event
                if isinstance(event, RunFinished | RunError):
                    return


async def read_stored_batches(
    ledger: Ledger, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
) -> AsyncGenerator[Batch, None]:
    """Yield the stored batches of a thread after a seq, `limit` bytes at a time, or one entry.

    Raises: EntriesDropped if retention drops some of them meanwhile; UnknownThread if the thread with that epoch was erased; LedgerError.
    """
    while batches := await ledger.read_batches(key, after, until=until, limit=limit, epoch=epoch):
        if batches[0].first != after + 1:
            raise EntriesDropped
        for batch in batches:
            yield batch
        after = batches[-1].last


async def read_run_structure(
    ledger: Ledger, info: RunInfo, *, after: int = 0, until: int | None = None
) -> AsyncGenerator[tuple[int, list[Event]], None]:
    """Yield what opens and closes the items of one run: the last seq of each of its stored batches, and its events without deltas.

    Deltas are most of a run, and decoding them most of the cost.
    """
    position = max(after, info.first - 1)
    while batches := await ledger.read_batches(info.thread, position, until=until):
        for batch in batches:
            if batch.owner == RUNTIME and batch.run == info.key:
                with report_decode_errors(info.thread, f"one of the entries {batch.first} to {batch.last}"):
                    events = [decode_event(line) for line in without_deltas(batch.lines)]
                yield batch.last, events
        position = batches[-1].last


async def find_run_start(ledger: Ledger, run: RunInfo, *, epoch: str = "") -> tuple[int, Event] | None:
    """Return the first event of a run, its RUN_STARTED, with its commit time; None if it is not stored yet.

    The facts before it may be longer than one read: the input, and the copy that a fork begins with.
    Raises: EntriesDropped if retention has dropped some of them; UnknownThread if the thread with that epoch was erased; LedgerError.
    """
    last = run.first + _MAX_FACTS_BEFORE_START
    stored = read_stored_batches(ledger, run.thread, run.first - 1, until=last, epoch=epoch, limit=_START_BYTES)
    async with aclosing(stored) as batches:
        async for batch in batches:
            if batch.owner == RUNTIME and batch.run == run.key:
                with report_decode_errors(run.thread, f"entry {batch.first}"):
                    return batch.ts, decode_event(batch.lines[0])
    return None


async def find_newest_ended_run(ledger: Ledger, info: ThreadInfo) -> RunInfo | None:
    """Return the newest run that had ended when `info` was read; None if there is none."""
    newest = await ledger.find_run_at(info.key, info.last)
    if newest is None or (newest.last and newest.last <= info.last):
        return newest
    return await ledger.find_run_at(info.key, newest.first - 1)


async def is_idle(ledger: Ledger, key: ThreadKey, position: int) -> bool:
    """Return True if a reader at `position` has read everything and no run is active, queued, or abandoned and not closed yet."""
    info = await ledger.get_thread(key)
    if info is None:
        return True
    if info.active or info.queued or position < info.last:
        return False
    newest = await ledger.find_run_at(key, info.last)
    return newest is None or bool(newest.last)
