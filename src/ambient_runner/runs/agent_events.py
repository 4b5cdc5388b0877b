"""The rules for an agent's events: it does not speak in the server's name, nor as a user, the system or the developer.

Names under `ambient:`, error codes of the server and digests of arguments are the server's. Those of another server are relayed.

They apply before middleware, which may add such events: the set-up sends developer messages. Snapshots have their own rules
(`agent_history.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ambient_runner.errors import ProtocolViolation
from ambient_runner.projections.private_entries import HISTORY_EVENT
from ambient_runner.protocol.dropped_events import drop_oversized_patch, drop_oversized_snapshot, dropped_event
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivitySnapshot,
    BaseEvent,
    Custom,
    Interrupted,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunError,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentError,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    type_of,
)
from ambient_runner.protocol.field_types import validate_fields
from ambient_runner.protocol.reserved_events import (
    RESERVED_ERROR_CODES,
    PlatformEvent,
    has_reserved_name,
    is_reserved_name,
    to_plain_event,
)
from ambient_runner.runs.approvals import ARGUMENTS_DIGEST

if TYPE_CHECKING:
    from ambient_runner.projections.history import Slices
    from ambient_runner.protocol.events import Event, Interrupt, Message, Outcome
    from ambient_runner.runs.run import Agent

__all__ = ["AgentEventRules", "CountRepair", "ignore_repair", "validate_event", "validate_in_slices"]

_E = TypeVar("_E", bound=BaseEvent)
CountRepair = Callable[[str, str, int], None]
"""Counts repairs: gets the rule, the type of the event, and the number."""

_EXEMPT_TYPES = frozenset(
    {
        TextMessageContent,
        TextMessageEnd,
        ToolCallStart,
        ToolCallArgs,
        ToolCallEnd,
        ToolCallResult,
        ReasoningStart,
        ReasoningMessageStart,
        ReasoningMessageContent,
        ReasoningMessageEnd,
        ReasoningEnd,
        StepStarted,
        StepFinished,
    }
)
"""Types of which the rules only concern the metadata."""
_ASSISTANT_ROLES = (None, "assistant")
_VALIDATED_AT_ONCE = 256
"""Messages of a snapshot that are validated before other tasks may run: about 2 milliseconds."""
_MAX_NAME_LENGTH = 64
"""Characters of a name that are reported."""


def ignore_repair(rule: str, event_type: str, times: int) -> None:
    """Count nothing: a `CountRepair` for callers that do not report repairs."""


def validate_event(event: _E) -> _E:
    """Return what an agent or a middleware yielded, with plain texts.

    Raises: ProtocolViolation for an event that could not be decoded from the ledger.
    """
    try:
        return validate_fields(event)
    except TypeError as error:
        raise ProtocolViolation from error


def validate_in_slices(event: Event) -> Slices[Event]:
    """Do what `validate_event` does, and stop wherever other tasks may run: a snapshot has any number of messages."""
    if not isinstance(event, MessagesSnapshot):
        return validate_event(event)
    validated = validate_event(replace(event, messages=event.messages[:0]))
    messages: list[Message] = []
    for start in range(0, len(event.messages), _VALIDATED_AT_ONCE):
        messages += validate_event(
            MessagesSnapshot(messages=event.messages[start : start + _VALIDATED_AT_ONCE])
        ).messages
        yield
    return replace(validated, messages=messages)


class AgentEventRules:
    """Applies the rules to the events of one run, and counts what it changes by rule."""

    def __init__(self, agent: Agent, count_repair: CountRepair) -> None:
        self._corrects_history = agent.corrects_history
        self._roles = {None, "assistant", *(("developer",) if agent.relays_developer_messages else ())}
        self._is_relay = agent.relays_developer_messages
        self._count_repair = count_repair

    def is_exempt(self, event: Event) -> bool:
        """Return True if no rule applies to the event. True for nearly all, and faster than `apply`."""
        if type(event) in _EXEMPT_TYPES:
            return event.metadata is None
        if not isinstance(event, TextMessageStart) or event.metadata is not None:
            return False
        return event.name is None and event.role in _ASSISTANT_ROLES

    def apply(self, value: object, event: Event) -> Event:
        """Return the event that the agent may send for this one. `value` is what it yielded: a `PlatformEvent` may use its name.

        An `event` that is a `PlatformEvent` may too: the coercer returns one for a value that is too large to be converted.
        """
        if isinstance(event, PlatformEvent):
            return to_plain_event(event)
        event = self._without_reserved_metadata(event)
        match event:
            case Custom() if has_reserved_name(event) and not self._has_permission(value):
                self._count_repair("reserved-name", type_of(event), 1)
                return to_plain_event(_dropped(event, event.name))
            case ActivitySnapshot() | ActivityDelta() if is_reserved_name(event.activity_type):
                self._count_repair("reserved-name", type_of(event), 1)
                return to_plain_event(_dropped(event, event.activity_type))
            case StateSnapshot() | StateDelta() | ActivityDelta():
                return drop_oversized_patch(event)
            case MessagesSnapshot():
                return drop_oversized_snapshot(event)
            case RunError() | SubagentError() if event.code in RESERVED_ERROR_CODES and not self._is_relay:
                self._count_repair("reserved-code", type_of(event), 1)
                # The text of an error without a code is not sent (`framing.py`).
                return replace(event, code=None)
            case TextMessageStart() | TextMessageChunk():
                return self._as_assistant(event)
            case _:
                return event

    def apply_to_outcome(self, outcome: Outcome | None) -> Outcome | None:
        """Return the outcome without digests of arguments that the agent wrote: the server adds its own (`approvals.py`)."""
        if self._is_relay or not isinstance(outcome, Interrupted):
            return outcome
        return replace(outcome, interrupts=[_without_digest(interrupt) for interrupt in outcome.interrupts])

    def _as_assistant(self, event: TextMessageStart | TextMessageChunk) -> Event:
        if event.name is not None and is_reserved_name(event.name):
            self._count_repair("reserved-name", type_of(event), 1)
            event = replace(event, name=None)
        if event.role not in self._roles:
            self._count_repair("text-role", type_of(event), 1)
            event = replace(event, role="assistant")
        return event

    def _without_reserved_metadata(self, event: Event) -> Event:
        metadata = event.metadata
        if self._is_relay or not metadata or not any(map(is_reserved_name, metadata)):
            return event
        self._count_repair("reserved-name", type_of(event), 1)
        kept = {name: value for name, value in metadata.items() if not is_reserved_name(name)}
        return replace(event, metadata=kept or None)

    def _has_permission(self, value: object) -> bool:
        """Return True for our own event; for one that corrects the history only if the bridge may do that."""
        return isinstance(value, PlatformEvent) and (self._corrects_history or value.name != HISTORY_EVENT)


def _dropped(event: Event, name: str) -> PlatformEvent:
    return dropped_event(type_of(event), "reserved_name", name=name[:_MAX_NAME_LENGTH])


def _without_digest(interrupt: Interrupt) -> Interrupt:
    metadata = interrupt.metadata or {}
    if ARGUMENTS_DIGEST not in metadata:
        return interrupt
    kept = {name: value for name, value in metadata.items() if name != ARGUMENTS_DIGEST}
    return replace(interrupt, metadata=kept or None)
