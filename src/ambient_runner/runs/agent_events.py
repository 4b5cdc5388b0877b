"""The rules for an agent's events: it does not speak in the server's name, nor as a user, the system or the developer.

They apply before middleware, which may add such events: the set-up sends developer messages. Snapshots have their own rules
(`agent_history.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.projections.private_entries import HISTORY_EVENT
from ambient_runner.protocol.dropped_events import dropped_event
from ambient_runner.protocol.events import Custom, TextMessageChunk, TextMessageStart, type_of
from ambient_runner.protocol.reserved_events import PlatformEvent, has_reserved_name, to_plain_event

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Agent

__all__ = ["AgentEventRules", "CountRepair", "ignore_repair"]

CountRepair = Callable[[str, str, int], None]
"""Counts repairs: gets the rule, the type of the event, and the number."""

_MAX_NAME_LENGTH = 64
"""Characters of a name that are reported."""


def ignore_repair(rule: str, event_type: str, times: int) -> None:
    """Count nothing: a `CountRepair` for callers that do not report repairs."""


class AgentEventRules:
    """Applies the rules to the events of one run, and counts what it changes by rule."""

    def __init__(self, agent: Agent, count_repair: CountRepair) -> None:
        self._corrects_history = agent.corrects_history
        self._roles = {None, "assistant", *(("developer",) if agent.relays_developer_messages else ())}
        self._count_repair = count_repair

    def apply(self, value: object, event: Event) -> Event:
        """Return the event that the agent may send for this one. `value` is what it yielded: a `PlatformEvent` may use its name."""
        match event:
            case Custom() if has_reserved_name(event) and not self._has_permission(value):
                self._count_repair("reserved-name", type_of(event), 1)
                return to_plain_event(_dropped(event))
            case TextMessageStart() | TextMessageChunk() if event.role not in self._roles:
                self._count_repair("text-role", type_of(event), 1)
                return replace(event, role="assistant")
            case _:
                return event

    def _has_permission(self, value: object) -> bool:
        """Return True for our own event; for one that corrects the history only if the bridge may do that."""
        return isinstance(value, PlatformEvent) and (self._corrects_history or value.name != HISTORY_EVENT)


def _dropped(event: Custom) -> PlatformEvent:
    return dropped_event("CUSTOM", "reserved_name", name=event.name[:_MAX_NAME_LENGTH])
