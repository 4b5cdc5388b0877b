"""Maintenance of threads: recovery closes runs whose process died, retention replaces old entries by a checkpoint."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.errors import RUN_ENDINGS, EntriesDropped, ThreadBusy
from ambient_runner.ledger.records import Checkpoint
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.protocol.events import RunError
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.checkpoints import is_checkpoint_due
from ambient_runner.runs.event_reader import read_run_structure
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.storable import encode_storable
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import RunInfo, ThreadKey

_ABANDONED = RunError(message=RUN_ENDINGS["run_abandoned"], code="run_abandoned")


async def close_abandoned(ledger: Ledger, info: RunInfo) -> bool:
    """Close a run whose process died. Return False if the run has ended or another run holds the thread by now.

    Raises: LedgerError.
    """
    try:
        writer = await ledger.acquire_lease(info.thread, info.key)
    except ThreadBusy:
        return False
    async with writer:
        if writer.has_ended:
            return False
        repairer = Repairer(info.thread.id, info.run_id)
        async with aclosing(read_run_structure(ledger, info)) as batches:
            async for _, events in batches:
                for event in events:
                    repairer.feed(event)
        view = await load_view(ledger, info.thread, until=writer.last, epoch=writer.epoch)
        checkpoint = None
        if is_checkpoint_due(view):
            checkpoint = view.update_checkpoint(await ledger.list_checkpoint_parts(info.thread))
        for event in (*repairer.close(), SNAPSHOT_MARKER, _ABANDONED):
            writer.append(encode_storable(event))
            view.apply_event(info.key, event)
        await writer.finish_run(thread_status(view), checkpoint=checkpoint)
    return True


async def apply_retention(ledger: Ledger, key: ThreadKey, keep: int) -> bool:
    """Drop entries older than the newest `keep`, at the boundary of a run, once the thread has more than twice as many.

    Raises: UnknownThread, LedgerError.
    """
    info = await ledger.get_thread(key)
    if info is None or info.last - info.first + 1 <= 2 * keep:
        return False
    oldest_retained = await ledger.find_run_at(key, info.last - keep + 1)
    if oldest_retained is None or oldest_retained.first <= info.first:
        return False
    boundary = oldest_retained.first - 1
    try:
        view = await load_view(ledger, key, until=boundary, epoch=info.epoch)
    except EntriesDropped:
        return False  # Another process has applied it since, after a later run.
    await ledger.trim_thread(key, Checkpoint(seq=boundary, body=view.to_checkpoint()), epoch=info.epoch)
    return True
