"""The server process in which an agent waits for an answer, recorded in the memory of the thread.

The answer is for that agent. Another server process on the same store refuses it: it would have to start a second agent.
"""

from __future__ import annotations

from typing import Any

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.ledger.process_identity import Process, has_ended, this_process

__all__ = ["holder_record", "is_held_elsewhere"]


def holder_record() -> dict[str, Any]:
    """Return the member of a thread's memory that names this process as the one in which an agent waits."""
    me = this_process()
    return {"holder": {"pid": me.pid, "started": me.started, "boot": me.boot, "space": me.pid_namespace}}


def is_held_elsewhere(memory: Any) -> bool:
    """Return True if, by the memory of the thread, another server process that may still exist waits for an answer."""
    match as_object(memory).get("holder"):
        case {"pid": int(pid), "started": str(started), "boot": str(boot), "space": str(pid_namespace)}:
            holder, me = Process(pid, started, boot, pid_namespace), this_process()
            return holder != me and not has_ended(holder, me)
        case _:
            return False
