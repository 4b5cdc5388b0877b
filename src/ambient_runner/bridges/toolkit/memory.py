"""The event that stores an adapter's memory, for runs with and without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import remember
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

__all__ = ["memory_events"]


def memory_events(value: Any) -> list[Event]:
    """Return the event that stores `value` with the thread; nothing without a server, where the event would reach the client."""
    return [] if current_run_or_none() is None else [remember(value)]
