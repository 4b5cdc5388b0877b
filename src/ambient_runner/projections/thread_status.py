"""The status of a thread and of a run, in the words that clients get. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ambient_runner.protocol.events import Cancelled, Interrupted, RunError

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadStatus
    from ambient_runner.projections.thread_view import RunStatus, ThreadView
    from ambient_runner.protocol.events import Terminal

__all__ = ["PublicRunStatus", "public_run_status", "run_status", "thread_status"]

PublicRunStatus = Literal["running", "finished", "failed", "stopped", "interrupted"]
"""The status of a run as clients get it. `interrupted`: it ended with interrupts, which may have been answered since."""

_PUBLIC: dict[RunStatus, PublicRunStatus] = {
    "running": "running",
    "finished": "finished",
    "error": "failed",
    "cancelled": "stopped",
    "interrupted": "interrupted",
}


def thread_status(view: ThreadView) -> ThreadStatus:
    """Return the status of a thread: that of its last run, or `waiting` while interrupts or frontend tool calls are open."""
    status = view.last_run.status if view.last_run else "finished"
    if status != "running" and (view.open_interrupts or view.pending_calls):
        return "waiting"
    public = _PUBLIC[status]
    # Its interrupts were answered or cancelled: nothing waits any more.
    return "finished" if public == "interrupted" else public


def run_status(terminal: Terminal | None) -> RunStatus:
    """Return the status of a run with this terminal event; None for one that runs."""
    if terminal is None:
        return "running"
    if isinstance(terminal, RunError):
        return "error"
    match terminal.outcome:
        case Cancelled():
            return "cancelled"
        case Interrupted():
            return "interrupted"
        case _:
            return "finished"


def public_run_status(status: RunStatus) -> PublicRunStatus:
    """Return the status of a run in the words of the HTTP routes."""
    return _PUBLIC[status]
