"""Closing a run whose owner died: its open envelopes, the snapshot's place, and RUN_ERROR `run_abandoned`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.errors import ThreadBusy
from ambient_runner.protocol.events import RunError
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.pipeline import storable
from ambient_runner.runs.watch import events_until

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger, RunInfo

_ABANDONED = RunError(
    message="This run was cut off: its server ended or could not write. What it said until then is kept; send your message again.",
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
        if writer.ended:
            return False
        repairer = Repairer(info.thread.id, info.run_id)
        async with aclosing(events_until(ledger, info)) as events:
            async for event in events:
                repairer.feed(event)
        for event in (*repairer.close(), SNAPSHOT_HERE, _ABANDONED):
            writer.append(storable(event))
        await writer.finish()
    return True
