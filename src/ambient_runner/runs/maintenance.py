"""Maintenance of threads: recovery closes runs whose process died, retention replaces old entries by a checkpoint."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ambient_runner.errors import RUN_ENDINGS, EntriesDropped, ThreadBusy, ThreadDamaged
from ambient_runner.ledger.log_context import log_context
from ambient_runner.ledger.records import Checkpoint
from ambient_runner.projections.thread_status import thread_status
from ambient_runner.protocol.events import RunError
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs import metrics
from ambient_runner.runs.checkpoints import is_checkpoint_due
from ambient_runner.runs.event_reader import read_run_structure
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.pipeline import CLOSED_AT_ONCE
from ambient_runner.runs.storable import encode_storable
from ambient_runner.runs.view_cache import load_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.base import Ledger, Writer
    from ambient_runner.ledger.records import RunInfo, ThreadKey
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event

logger = logging.getLogger(__name__)

_RECOVERY_BATCH = 100
"""Abandoned runs that are listed at once."""
_ABANDONED = RunError(message=RUN_ENDINGS["run_abandoned"], code="run_abandoned")


async def close_abandoned_runs(ledger: Ledger) -> None:
    """Close every run whose process died."""
    if ledger.unavailable_reason() is not None:
        return  # Nothing can be closed now, and the store has logged why.
    with isolate("listing abandoned runs"):
        closed = _RECOVERY_BATCH
        # There may be more than one list of them. Those that cannot be closed stay for the next time.
        while closed:
            found = await ledger.list_abandoned_runs(limit=_RECOVERY_BATCH)
            closed = 0
            for info in found:
                with (
                    isolate(f"closing the abandoned run {info.key} on thread {info.thread.id}"),
                    suppress(ThreadDamaged),  # Logged where it was found.
                ):
                    closed += await close_abandoned_run(ledger, info)


async def close_abandoned_run(ledger: Ledger, info: RunInfo) -> bool:
    """Close an abandoned run, count and log it. Return False if there was nothing to close any more. Raises: LedgerError."""
    if not await write_abandoned_end(ledger, info):
        return False
    metrics.RECOVERED.inc()
    metrics.RUNS.labels("abandoned").inc()
    thread = await ledger.get_thread(info.thread)
    agent = thread.agent if thread else "unknown"
    logger.warning(
        "Run %s of agent %s on thread %s of %s was abandoned: its process ended or lost its lease. It is now closed with the error "
        "run_abandoned, and its output so far is stored; send the message again (runId %r)",
        info.key,
        agent,
        info.thread.id,
        info.thread.owner,
        info.run_id,
        extra=log_context(info.key, info.thread.id, agent),
    )
    return True


async def write_abandoned_end(ledger: Ledger, info: RunInfo) -> bool:
    """Write the end of a run whose process died. Return False if the run has ended or another run holds the thread by now.

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
        while closing := repairer.close(CLOSED_AT_ONCE):
            _append_events(writer, view, closing)
            await asyncio.sleep(0)
        _append_events(writer, view, (SNAPSHOT_MARKER, _ABANDONED))
        await writer.finish_run(thread_status(view), checkpoint=checkpoint)
    return True


def _append_events(writer: Writer, view: ThreadView, events: Sequence[Event]) -> None:
    for event in events:
        writer.append(encode_storable(event))
        view.apply_event(writer.run, event)


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
