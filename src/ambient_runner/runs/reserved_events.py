"""CUSTOM events with reserved names, `ambient:*`. An agent may send some of them; the server and its users send the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.projections.private_entries import HISTORY_EVENT, MEMORY_EVENT
from ambient_runner.protocol.events import CUSTOM_PREFIX
from ambient_runner.protocol.limits import dropped_event

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Custom

__all__ = ["may_agent_send", "replace_reserved_event"]

_AGENT_EVENTS = frozenset(
    f"{CUSTOM_PREFIX}{name}"
    for name in (
        *("dropped", "hook_error", "interrupt_lapsed", "setup_error"),
        *("repo_added", "repo_progress", "repo_removed", "workflow_changed"),
    )
)
_MAX_NAME_LENGTH = 64
"""Characters of a name that are reported."""


def may_agent_send(event: Custom) -> bool:
    """Return True if the name is not reserved, or an agent may use it: the events about its work."""
    return not event.name.startswith(CUSTOM_PREFIX) or event.name in _AGENT_EVENTS


def replace_reserved_event(event: Custom, *, may_correct: bool) -> Custom:
    """Return an event of an agent; `ambient:dropped` in place of one that it may not send.

    An adapter may store its memory. It may correct the history only if `may_correct`: if it compares its messages with the thread itself.
    """
    is_private = event.name == MEMORY_EVENT or (may_correct and event.name == HISTORY_EVENT)
    if is_private or may_agent_send(event):
        return event
    return dropped_event("CUSTOM", "reserved_name", name=event.name[:_MAX_NAME_LENGTH])
