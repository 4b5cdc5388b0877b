"""Events sent before a stream that begins in the middle of a thread: they re-open the running run, or announce a gap."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING

from ambient_runner.protocol.events import (
    Custom,
    MessagesSnapshot,
    RunFinished,
    RunStarted,
    StateSnapshot,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.event_reader import read_run_events

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event


async def reopen_events(ledger: Ledger, key: ThreadKey, after: int) -> list[Event]:
    """Return RUN_STARTED and an empty START for everything that is open after entry `after`; nothing between runs."""
    run = await ledger.find_run_at(key, after)
    if run is None or (run.last and run.last <= after):
        return []
    repairer = Repairer(key.id, run.run_id)
    started: list[Event] = []
    async with aclosing(read_run_events(ledger, run, after)) as events:
        async for event in events:
            if isinstance(event, RunStarted):
                started.append(event)
            repairer.feed(event)
    return [*started, *repairer.reopening_events()] if started else []


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
