"""A connect: the thread as one small run that any client accepts, for a page that opens it. Pure; the routes read and render.

Of a thread with an active run it shows the moment before that run, which then follows from its RUN_STARTED. So a client never has a
message twice: once in the snapshot and once streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.projections.thread_event import thread_event
from ambient_runner.protocol.encode import format_cursor
from ambient_runner.protocol.events import (
    PROTOCOL_VERSION,
    Interrupted,
    MessagesSnapshot,
    RunFinished,
    RunStarted,
    StateSnapshot,
    Success,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.records import RunInfo, ThreadInfo
    from ambient_runner.projections.thread_event import ThreadIdentity
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Event, Outcome

__all__ = ["connect_events", "is_run_active", "seq_before_active_run"]


def is_run_active(info: ThreadInfo, newest: RunInfo | None) -> bool:
    """Return True if the thread's newest run had no terminal entry when `info` was read."""
    return newest is not None and (not newest.last or newest.last > info.last)


def seq_before_active_run(info: ThreadInfo, newest: RunInfo | None) -> int:
    """Return the seq of the entry that a connect stands for: the newest one, or the one before the active run's first entry.

    `newest` is the newest run that began at or before `info.last`.
    """
    return newest.first - 1 if newest is not None and is_run_active(info, newest) else info.last


def connect_events(thread: ThreadIdentity, epoch: str, view: ThreadView, hidden: Collection[str]) -> list[Event]:
    """Return the events of the small run. `hidden` are the state keys that clients do not see.

    They depend on the view alone, so every connect at one entry gets the same. No error of an earlier run is repeated: the page would
    show it every time it is opened. `ambient:thread` has the status.
    """
    run_id = f"connect-{format_cursor(epoch, view.seq)}"
    timestamp = view.updated or None
    events: list[Event] = [
        RunStarted(thread_id=thread.id, run_id=run_id, protocol_version=PROTOCOL_VERSION),
        MessagesSnapshot(messages=view.transcript.messages()),
        StateSnapshot(snapshot=view.state.visible_part(hidden)),
        thread_event(thread, view),
        RunFinished(thread_id=thread.id, run_id=run_id, outcome=_open_outcome(view)),
    ]
    return [replace(event, timestamp=timestamp) for event in events]


def _open_outcome(view: ThreadView) -> Outcome | None:
    """Return the outcome with everything that waits for the client; None if nothing does."""
    if view.open_interrupts:
        return Interrupted(interrupts=[pending.interrupt for pending in view.open_interrupts.values()])
    return Success(pending_tool_call_ids=list(view.pending_calls)) if view.pending_calls else None
