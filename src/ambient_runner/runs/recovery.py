"""Closing a run whose owner died: its open envelopes, the snapshot's place, and RUN_ERROR `run_abandoned`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import ThreadBusy
from ambient_runner.ledger.base import RUNTIME
from ambient_runner.protocol.events import RunError, decode_event
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.pipeline import storable

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger, RunInfo

_ABANDONED = RunError(
    message="The server stopped during this run. What it said until then is kept; send your message again to go on.",
    code="run_abandoned",
)


async def close_abandoned(ledger: Ledger, info: RunInfo) -> bool:
    """End the run in its owner's place; False when someone else has the thread by now.

    Raises: LedgerError.
    """
    try:
        writer = await ledger.acquire(info.thread, info.key)
    except ThreadBusy:
        return False
    async with writer:
        current = await ledger.run(info.thread, info.key)
        if current is None or current.last:
            return False
        repairer = await replayed(ledger, info)
        for event in (*repairer.close(), SNAPSHOT_HERE, _ABANDONED):
            writer.append(storable(event))
        await writer.finish()
    return True


async def replayed(ledger: Ledger, info: RunInfo, *, until: int | None = None) -> Repairer:
    """The grammar's state after the run's entries up to `until`: what is open there."""
    repairer = Repairer(info.thread.id, info.run_id)
    after = info.first - 1
    while batches := await ledger.read(info.thread, after, until=until):
        for batch in batches:
            if batch.owner == RUNTIME and batch.run == info.key:
                for line in batch.lines:
                    repairer.feed(decode_event(line))
        after = batches[-1].last
    return repairer
