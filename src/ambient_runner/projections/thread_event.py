"""CUSTOM `ambient:thread`: what a page shows of a thread beside its messages and state. Pure.

It is sent at a connect (`runs/connect.py`), and after every fact that changes one of its members between runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ambient_runner.projections.projectors import FEEDBACK, FEEDBACK_OWNER
from ambient_runner.projections.thread_status import run_members, thread_status
from ambient_runner.projections.thread_view import (
    APPROVALS_OWNER,
    INTERRUPTS_CANCELLED,
    LABELLED,
    THREAD_OWNER,
)
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from ambient_runner.ledger.records import Batch, ThreadInfo
    from ambient_runner.projections.thread_view import ThreadView

__all__ = ["THREAD_EVENT", "ThreadIdentity", "changes_thread", "thread_event"]

THREAD_EVENT = "ambient:thread"

_CHANGING_FACTS = frozenset(
    {
        (THREAD_OWNER, LABELLED),
        (FEEDBACK_OWNER, FEEDBACK),
        (APPROVALS_OWNER, INTERRUPTS_CANCELLED),
        (THREAD_OWNER, INTERRUPTS_CANCELLED),  # of earlier versions
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadIdentity:
    """The properties of a thread that never change and that its entries do not have."""

    id: str
    agent: str
    created: int = 0
    """Time in milliseconds since 1970, for a view of the thread before its first entry."""

    @classmethod
    def of_info(cls, info: ThreadInfo) -> Self:
        return cls(id=info.key.id, agent=info.agent, created=info.created)


def changes_thread(batch: Batch) -> bool:
    """Return True if the entries of a batch change a member of `ambient:thread` outside of runs."""
    return (batch.owner, batch.kind) in _CHANGING_FACTS


def thread_event(thread: ThreadIdentity, view: ThreadView, timestamp: int | None = None) -> Custom:
    """Return the event with the thread as it is in this view."""
    created = view.created or thread.created
    value: dict[str, Any] = {
        "threadId": thread.id,
        "agent": thread.agent,
        "title": view.annotations.title,
        "archived": view.annotations.archived,
        "status": thread_status(view),
        "createdAt": created,
        "updatedAt": view.updated or created,
        "pendingCalls": [{"id": call, "name": name} for call, name in view.pending_calls.items()],
        "feedback": view.feedback,
    }
    if view.fork is not None:
        value["forkedFrom"] = msgspec.to_builtins(view.fork.origin)
    if view.last_run is not None:
        run = view.last_run
        value["lastRun"] = run_members(
            key=run.key,
            run_id=run.run_id,
            status=run.status,
            trace_id=run.trace_id,
            started=run.started,
            ended=run.ended,
            usage=run.terminal.usage if run.terminal else None,
        )
    return Custom(name=THREAD_EVENT, value=value, timestamp=timestamp)
