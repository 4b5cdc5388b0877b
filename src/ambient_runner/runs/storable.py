"""Making events storable: one line of JSON each, within the limits of size and depth. `pipeline.py` calls this for every run.

An event that cannot be stored as it is loses its metadata, its long texts or its content, or is replaced by CUSTOM `ambient:dropped`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.projections.private_entries import HISTORY_EVENT, is_private
from ambient_runner.protocol.dropped_events import dropped_event
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
    RunFinished,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    encode_event,
    type_of,
)
from ambient_runner.protocol.limits import MAX_EVENT_BYTES, MAX_EVENT_DEPTH, MAX_MESSAGE_DEPTH, nesting_depth

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

UNENCODABLE_ERRORS = (UnicodeEncodeError, TypeError, ValueError, OverflowError)
"""Errors `encode_event` raises for values that cannot be encoded. RecursionError is separate: the value is too deep."""

# Deltas have no timestamp: there are many, and their START has one. Nor has the snapshot marker: it is compared by its bytes.
UNSTAMPED_TYPES = frozenset({TextMessageContent, ToolCallArgs, ReasoningMessageContent, MessagesSnapshot})

_BOUNDARY_TYPES = frozenset(
    {
        TextMessageStart,
        TextMessageEnd,
        ToolCallStart,
        ToolCallEnd,
        ReasoningStart,
        ReasoningEnd,
        ReasoningMessageStart,
        ReasoningMessageEnd,
        StepStarted,
        StepFinished,
        SubagentStarted,
        SubagentFinished,
        SubagentError,
    }
)
"""Types that open or close something: without them, later events would violate the protocol."""
_MESSAGE_TYPES = frozenset(
    {
        TextMessageStart,
        TextMessageContent,
        TextMessageEnd,
        ToolCallStart,
        ToolCallArgs,
        ToolCallEnd,
        ToolCallResult,
        ReasoningMessageStart,
        ReasoningMessageContent,
        ReasoningMessageEnd,
        ActivitySnapshot,
        ActivityDelta,
    }
)
"""Types whose metadata or content becomes part of a message."""
_MAX_FIELD_CHARS = 1000
"""Characters that remain of a long text field of a boundary event."""


def encode_within_message_depth(event: Event) -> bytes:
    """Encode an event without values so deep that a client could not send its message back."""
    line = encode_storable(event)
    if type(event) not in _MESSAGE_TYPES or line.count(b"[") + line.count(b"{") <= MAX_MESSAGE_DEPTH:
        return line
    is_too_deep = nesting_depth(msgspec.json.decode(line)) > MAX_MESSAGE_DEPTH
    return encode_storable(drop_deep_values(event)) if is_too_deep else line


def encode_unstamped(event: Event) -> bytes:
    """Encode an event of `UNSTAMPED_TYPES` that has no metadata."""
    try:
        line = encode_event(event)
    except UnicodeEncodeError:
        line = encode_storable(event)
    return line if len(line) <= MAX_EVENT_BYTES else encode_storable(event)


def stamp_event(event: Event) -> Event:
    """Return the event with a timestamp: its own, or the current time."""
    if event.timestamp is not None:
        return event
    return msgspec.structs.replace(event, timestamp=time.time_ns() // 1_000_000)


def _is_unstamped(event: Event) -> bool:
    return type(event) in UNSTAMPED_TYPES or is_private(event)


def encode_storable(event: Event) -> bytes:
    """Encode the event as one line of JSON; as CUSTOM `ambient:dropped` if it cannot be stored."""
    try:
        line = _encode_line(event)
        if _is_too_deep(line):
            line = _encode_line(drop_deep_values(event))
    except RecursionError:
        # Nested deeper than the interpreter recurses, so deeper than allowed.
        line = _encode_line(drop_deep_values(event))
    return line if len(line) <= MAX_EVENT_BYTES else encode_dropped(event, "too_large")


def _encode_line(event: Event) -> bytes:
    try:
        return encode_event(event) if _is_unstamped(event) else encode_event(stamp_event(event))
    except UNENCODABLE_ERRORS:
        return _encode_sanitized(event)


def _is_too_deep(line: bytes) -> bool:
    if line.count(b"[") + line.count(b"{") <= MAX_EVENT_DEPTH:
        return False
    return nesting_depth(msgspec.json.decode(line), MAX_EVENT_DEPTH) > MAX_EVENT_DEPTH


def _encode_sanitized(event: Event) -> bytes:
    """Encode the event without lone surrogates, then without metadata; as `ambient:dropped` if that does not help."""
    for attempt in (_without_surrogates, _without_metadata):
        try:
            return encode_event(attempt(event))
        except UNENCODABLE_ERRORS:
            continue
    return encode_dropped(event, "not_encodable")


def encode_dropped(event: Event, reason: str) -> bytes:
    """Encode what replaces an event that cannot be stored: a shorter event if the protocol needs it, else `ambient:dropped`."""
    match event:
        case RunFinished():
            line = encode_event(_plain_run_finished(event))
            too_long = RunError(message="The agent's interrupts are too large to be stored.", code=reason)
            return line if len(line) <= MAX_EVENT_BYTES else encode_event(too_long)
        case RunError():
            return encode_event(RunError(message="The agent failed.", code=event.code))
        case _ if type(event) in _BOUNDARY_TYPES:
            return encode_event(_truncate_fields(event))
        case _:
            return encode_event(dropped_event(_reported_type(event), reason))


def _reported_type(event: Event) -> str:
    """Return the type to report. A correction of the history was made from a MESSAGES_SNAPSHOT of the agent."""
    return "MESSAGES_SNAPSHOT" if isinstance(event, Custom) and event.name == HISTORY_EVENT else type_of(event)


def _truncate_fields(event: Event) -> Event:
    """Return a boundary event with its texts truncated and without metadata and result."""
    texts = {
        name: getattr(event, name, None) for name in ("name", "tool_call_name", "step_name", "description", "message")
    }
    short = {name: value[:_MAX_FIELD_CHARS] for name, value in texts.items() if isinstance(value, str)}
    bulk = {name: None for name in ("metadata", "result") if name in event.__struct_fields__}
    return msgspec.structs.replace(event, **short, **bulk)


def drop_deep_values(event: Event) -> Event:
    """Return the event without values that may be nested too deep. The protocol's grammar does not depend on them."""
    match event:
        case RunFinished():
            return _plain_run_finished(event)
        case StateSnapshot() | StateDelta() | Custom() | ActivitySnapshot() | ActivityDelta():
            return dropped_event(_reported_type(event), "too_deep")
        case SubagentFinished():
            return msgspec.structs.replace(event, metadata=None, result=None)
        case ToolCallResult(content=list(parts)):
            plain = [msgspec.structs.replace(part, metadata=None) for part in parts]
            return msgspec.structs.replace(event, metadata=None, content=plain)
        case _:
            return msgspec.structs.replace(event, metadata=None)


def _plain_run_finished(event: RunFinished) -> RunFinished:
    """Return RUN_FINISHED without the values of any type an agent may have added. Its interrupts can still be answered."""
    outcome = event.outcome
    if isinstance(outcome, Interrupted):
        plain = [
            msgspec.structs.replace(interrupt, metadata=None, response_schema=None) for interrupt in outcome.interrupts
        ]
        outcome = Interrupted(interrupts=plain)
    return msgspec.structs.replace(event, result=None, metadata=None, outcome=outcome)


def _without_metadata(event: Event) -> Event:
    return _without_surrogates(msgspec.structs.replace(event, metadata=None))


def _without_surrogates(event: Event) -> Event:
    fields = {name: _clean_value(getattr(event, name)) for name in event.__struct_fields__}
    return type(event)(**fields)


def _clean_value(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(value) else value
        case dict():
            return {_clean_value(key): _clean_value(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [_clean_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case BaseEvent() | msgspec.Struct():
            return type(value)(**{name: _clean_value(getattr(value, name)) for name in value.__struct_fields__})
        case _:
            return value


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
