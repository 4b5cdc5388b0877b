"""The runs of a thread for a list of them: their status, times, usage and trace, read from the first and the last entries of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.errors import EntriesDropped
from ambient_runner.ledger.records import RUNTIME
from ambient_runner.ledger.thread_damage import report_decode_errors
from ambient_runner.projections.thread_status import run_status
from ambient_runner.protocol.events import RunError, RunFinished, RunStarted, decode_event
from ambient_runner.runs.event_reader import find_run_start

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import RunInfo, ThreadInfo
    from ambient_runner.projections.thread_status import RunStatus
    from ambient_runner.protocol.events import Event, TokenUsage

__all__ = ["RunDetails", "list_retained_runs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDetails:
    """A run, as its first and last entries show it."""

    info: RunInfo
    status: RunStatus
    started: int
    """Commit time of its first event, in milliseconds since 1970."""
    ended: int
    """Commit time of its terminal event; 0 while it has none."""
    usage: list[TokenUsage] | None
    trace_id: str
    entry_count: int
    """Number of entries from its first to its last one so far, facts that were added meanwhile included."""


async def list_retained_runs(ledger: Ledger, info: ThreadInfo, *, limit: int, before: int | None) -> list[RunDetails]:
    """Return the runs whose entries are all retained, newest first; with `before`, those whose first entry is before that seq.

    Raises: EntriesDropped if retention has dropped one of them since `info` was read; LedgerError.
    """
    runs = await ledger.list_runs(info.key, limit=limit, before=before)
    return [await _read_details(ledger, info, run) for run in runs if run.first >= info.first]


async def _read_details(ledger: Ledger, info: ThreadInfo, run: RunInfo) -> RunDetails:
    began = await find_run_start(ledger, run, epoch=info.epoch)
    ended = await _read_last_event(ledger, info, run) if run.last else None
    if began is None or (run.last and ended is None):
        raise EntriesDropped
    started_at, started = began
    ended_at, event = ended or (0, None)
    terminal = event if isinstance(event, RunFinished | RunError) else None
    metadata = started.metadata if isinstance(started, RunStarted) else None
    return RunDetails(
        info=run,
        status=run_status(terminal),
        started=started_at,
        ended=ended_at,
        usage=terminal.usage if terminal else None,
        trace_id=str((metadata or {}).get("traceId", "")),
        entry_count=max(run.last or info.last, run.first) - run.first + 1,
    )


async def _read_last_event(ledger: Ledger, info: ThreadInfo, run: RunInfo) -> tuple[int, Event] | None:
    """Return the event that ended the run, with its commit time. It is one entry, which one read returns, however large."""
    for batch in await ledger.read_batches(info.key, run.last - 1, until=run.last, epoch=info.epoch):
        if batch.owner == RUNTIME and batch.run == run.key:
            with report_decode_errors(info.key, f"entry {batch.first}"):
                return batch.ts, decode_event(batch.lines[0])
    return None
