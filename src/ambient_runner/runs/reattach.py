"""What a reader needs before a stream that begins in the middle: the open run re-opened, or the gap announced."""

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
from ambient_runner.runs.event_reader import events_until

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.base import Ledger, ThreadInfo, ThreadKey
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event


async def reopening(ledger: Ledger, key: ThreadKey, after: int) -> list[Event]:
    """RUN_STARTED and a fresh, empty START for everything that is open after entry `after`; nothing between runs."""
    run = await ledger.run_at(key, after)
    if run is None or (run.last and run.last <= after):
        return []
    repairer = Repairer(key.id, run.run_id)
    begun: list[Event] = []
    async with aclosing(events_until(ledger, run, after)) as events:
        async for event in events:
            if isinstance(event, RunStarted):
                begun.append(event)
            repairer.feed(event)
    return [*begun, *repairer.reopening()] if begun else []


def gap(info: ThreadInfo, after: int, view: ThreadView, hidden: Collection[str]) -> list[Event]:
    """A small run of its own that says what is missing and gives the conversation up to there, so that any client accepts it."""
    run_id = f"gap-{uuid.uuid4().hex}"
    return [
        RunStarted(thread_id=info.key.id, run_id=run_id),
        Custom(name="ambient:gap", value={"after": after, "before": info.first}),
        MessagesSnapshot(messages=view.transcript.messages()),
        StateSnapshot(snapshot=view.state.visible(hidden)),
        RunFinished(thread_id=info.key.id, run_id=run_id),
    ]
