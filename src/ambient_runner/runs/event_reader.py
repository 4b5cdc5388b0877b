"""Reading runs as decoded events: what the terminal and tests use. The HTTP doors send stored bytes instead (`server/event_stream.py`)."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.ledger.base import RUNTIME
from ambient_runner.projections.private_entries import is_kept
from ambient_runner.protocol.events import RunError, RunFinished, decode_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Batch, Ledger, RunInfo, ThreadKey
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started


async def thread_batches(ledger: Ledger, key: ThreadKey, after: int = 0) -> AsyncGenerator[Batch, None]:
    """Every batch of a thread after a seq, then live ones. Never ends by itself."""
    async with ledger.tail(key, after) as tail:
        while True:
            for batch in await tail.next():
                yield batch


async def run_events(ledger: Ledger, started: Started) -> AsyncGenerator[Event, None]:
    """The events of one run, up to and including its terminal event."""
    async with aclosing(thread_batches(ledger, started.thread, started.after)) as batches:
        async for batch in batches:
            if batch.run != started.run or batch.owner != RUNTIME:
                continue
            for line in batch.lines:
                event = decode_event(line)
                if not is_kept(event):
                    yield event
                if isinstance(event, RunFinished | RunError):
                    return


async def events_until(ledger: Ledger, info: RunInfo, until: int | None = None) -> AsyncGenerator[Event, None]:
    """The stored events of one run up to a seq, or all there are."""
    read = info.first - 1
    while batches := await ledger.read(info.thread, read, until=until):
        for batch in batches:
            if batch.owner == RUNTIME and batch.run == info.key:
                for line in batch.lines:
                    yield decode_event(line)
        read = batches[-1].last


async def is_idle(ledger: Ledger, key: ThreadKey, position: int) -> bool:
    """Whether a reader at `position` has seen all there will be for now: no run is active, queued, or dead and still to be closed."""
    info = await ledger.thread(key)
    if info is None:
        return True
    if info.active or info.queued or position < info.last:
        return False
    newest = await ledger.run_at(key, info.last)
    return newest is None or bool(newest.last)
