"""The status of a thread and of a run, in the words that clients get. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ambient_runner.protocol.events import Cancelled, Interrupted, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import ThreadStatus
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Terminal, TokenUsage

__all__ = ["RunStatus", "run_members", "run_status", "thread_status"]

RunStatus = Literal["running", "finished", "failed", "stopped", "interrupted"]
"""The status of a run. `interrupted`: it ended with interrupts, which may have been answered since."""


def thread_status(view: ThreadView) -> ThreadStatus:
    """Return the status of a thread: that of its last run, or `waiting` while interrupts or frontend tool calls are open."""
    status = view.last_run.status if view.last_run else "finished"
    if status != "running" and (view.open_interrupts or view.pending_calls):
        return "waiting"
    # Its interrupts were answered or cancelled: nothing waits any more.
    return "finished" if status == "interrupted" else status


def run_status(terminal: Terminal | None) -> RunStatus:
    """Return the status of a run with this terminal event; None for one that runs."""
    if terminal is None:
        return "running"
    if isinstance(terminal, RunError):
        return "failed"
    match terminal.outcome:
        case Cancelled():
            return "stopped"
        case Interrupted():
            return "interrupted"
        case _:
            return "finished"


def run_members(
    *,
    key: str,
    run_id: str,
    status: RunStatus,
    trace_id: str,
    started: int,
    ended: int,
    usage: Sequence[TokenUsage] | None,
) -> dict[str, Any]:
    """Return a run as clients get it, in `ambient:thread` and in the list of runs. Times are in milliseconds since 1970; 0 is unknown."""
    optional = {
        "startedAt": started or None,
        "endedAt": ended or None,
        "usage": msgspec.to_builtins(usage) if usage else None,
    }
    known = {name: value for name, value in optional.items() if value is not None}
    return {"run": key, "runId": run_id, "status": status, "traceId": trace_id, **known}
