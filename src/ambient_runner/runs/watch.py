"""Reading runs as decoded events: what the terminal and tests use. The HTTP doors send stored bytes instead (`server/stream.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.base import RUNTIME
from ambient_runner.protocol.events import RunError, RunFinished, decode_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Batch, Ledger, ThreadKey
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started


async def thread_batches(ledger: Ledger, key: ThreadKey, after: int = 0) -> AsyncGenerator[Batch, None]:
    """Every batch of a thread after a seq, then live ones. Never ends by itself."""
    async with ledger.tail(key, after) as tail:
        while True:
            for batch in await tail.next():
                yield batch


async def thread_events(ledger: Ledger, key: ThreadKey, after: int = 0) -> AsyncGenerator[Event, None]:
    """Every runtime event of a thread after a seq, then live ones."""
    async for batch in thread_batches(ledger, key, after):
        if batch.owner == RUNTIME:
            for line in batch.lines:
                yield decode_event(line)


async def run_events(ledger: Ledger, started: Started) -> AsyncGenerator[Event, None]:
    """The events of one run, up to and including its terminal event."""
    async for batch in thread_batches(ledger, started.thread, started.after):
        if batch.run != started.run or batch.owner != RUNTIME:
            continue
        for line in batch.lines:
            event = decode_event(line)
            yield event
            if isinstance(event, RunFinished | RunError):
                return
