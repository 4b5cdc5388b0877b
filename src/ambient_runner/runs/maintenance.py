"""Upkeep of threads: recovery closes runs whose process died, retention replaces old entries by a checkpoint."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.errors import ThreadBusy
from ambient_runner.ledger.base import Checkpoint
from ambient_runner.protocol.events import RunError
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.event_reader import events_until
from ambient_runner.runs.framing import SNAPSHOT_HERE
from ambient_runner.runs.pipeline import storable
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger, RunInfo, ThreadKey

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


async def retain(ledger: Ledger, key: ThreadKey, keep: int) -> bool:
    """Drop what is older than the newest `keep` entries, at the edge of a run. Only once as much again has gathered.

    Raises: UnknownThread, LedgerError.
    """
    info = await ledger.thread(key)
    if info is None or info.last - info.first + 1 <= 2 * keep:
        return False
    oldest_kept = await ledger.run_at(key, info.last - keep + 1)
    if oldest_kept is None or oldest_kept.first <= info.first:
        return False
    edge = oldest_kept.first - 1
    view = await load_view(ledger, key, until=edge)
    await ledger.trim(key, Checkpoint(seq=edge, body=view.to_checkpoint()))
    return True
