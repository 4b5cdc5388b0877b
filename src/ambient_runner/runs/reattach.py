"""Events made for a stream that begins in the middle of a thread: a gap, or repeated facts. `reattach_cache.py` re-opens runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ambient_runner.projections.projectors import project_facts
from ambient_runner.projections.thread_view import STATE_OWNER
from ambient_runner.protocol.events import (
    Custom,
    MessagesSnapshot,
    RunFinished,
    RunStarted,
    StateSnapshot,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Started


async def facts_before_run(ledger: Ledger, started: Started) -> list[Event]:
    """Return the facts between this run and the one before, for a client that reads runs only. The run begins with the state anyway."""
    end = started.previous_end
    if end is None:
        previous = await ledger.find_run_at(started.thread, started.after)
        end = (previous.last if previous else 0) or started.after
    found: list[Event] = []
    while end < started.after:
        batches = await ledger.read_batches(started.thread, end, until=started.after)
        if not batches:
            break
        facts = [batch for batch in batches if not batch.run and batch.owner != STATE_OWNER]
        found += [event for batch in facts for events in project_facts(batch) for event in events]
        end = batches[-1].last
    return found


def gap_events(info: ThreadInfo, after: int, view: ThreadView, hidden: Collection[str]) -> list[Event]:
    """Return a small run of its own that announces the missing entries and contains the conversation up to there. Any client accepts it."""
    run_id = f"gap-{uuid.uuid4().hex}"
    return [
        RunStarted(thread_id=info.key.id, run_id=run_id),
        Custom(name="ambient:gap", value={"after": after, "before": info.first}),
        MessagesSnapshot(messages=view.transcript.messages()),
        StateSnapshot(snapshot=view.state.visible_part(hidden)),
        RunFinished(thread_id=info.key.id, run_id=run_id),
    ]
