"""Events that the pipeline defers: which ones may wait, and their encoding in one step.

Deltas and what starts or ends a message, a call or a step are nearly all events of an agent, and small. Redacted and encoded together, an
event costs a fifth of what it costs alone.
"""

from __future__ import annotations

import time
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ambient_runner.ledger.records import Encoded, JoinedText
from ambient_runner.protocol.events import (
    DELTA_TYPES,
    ReasoningEnd,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    encode_event,
)
from ambient_runner.protocol.field_types import allowed_values, signatures_of_texts
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from ambient_runner.runs.storable import UNENCODABLE_ERRORS, UNSTAMPED_TYPES, encode_storable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Delta, Event

__all__ = [
    "DEFERRED_TYPES",
    "LONG_TEXT_FLUSH_CHARS",
    "MAX_DEFERRED_DELTA_CHARS",
    "MAX_DEFERRED_TEXT_CHARS",
    "MAX_SHORT_DELTA_CHARS",
    "encode_deltas",
    "encode_groups",
    "encode_stamped",
    "encode_together",
    "is_deferrable",
    "split_groups",
]

DEFERRED_TYPES = frozenset(
    {
        TextMessageStart,
        TextMessageEnd,
        ToolCallStart,
        ToolCallEnd,
        ToolCallResult,
        ReasoningStart,
        ReasoningMessageStart,
        ReasoningMessageEnd,
        ReasoningEnd,
        StepStarted,
        StepFinished,
    }
)
"""Types, other than deltas, of events that may be deferred."""
MAX_DEFERRED_TEXT_CHARS = 4096
"""Characters of the longest result or patch that may be deferred."""
MAX_SHORT_DELTA_CHARS = 256
"""Characters of a short text. Short ones are deferred until the agent pauses or a batch is full, longer ones are counted, too."""
MAX_DEFERRED_DELTA_CHARS = 1 << 16
"""Characters of the longest delta that may be deferred."""
LONG_TEXT_FLUSH_CHARS = 1 << 15
"""Characters of deferred long texts at which all deferred events are written: searching more takes milliseconds."""
_get_delta, _get_metadata, _get_role = attrgetter("delta"), attrgetter("metadata"), attrgetter("role")
_OTHER_FIELDS = frozenset({"content", "metadata", "raw_event"})
_text_fields: dict[type[Event], list[str]] = {
    kind: [name for name in kind.__struct_fields__ if name not in _OTHER_FIELDS] for kind in DEFERRED_TYPES
}
_read_texts: dict[type[Event], Any] = {kind: attrgetter(*names) for kind, names in _text_fields.items()}
_signatures = {kind: signatures_of_texts(kind, names) for kind, names in _text_fields.items()}
"""The types that the fields above may have."""
_roles: dict[type[Event], frozenset[Any]] = {
    kind: roles for kind in DEFERRED_TYPES if (roles := allowed_values(kind, "role")) is not None
}
_NO_METADATA = {type(None)}


def is_deferrable(event: Event) -> bool:
    """Return True if an event of `DEFERRED_TYPES` is small, and has no field of arbitrary JSON."""
    if event.metadata is not None or event.raw_event is not None:
        return False
    kind = type(event)
    if tuple(map(type, _read_texts[kind](event))) not in _signatures[kind]:
        return False  # A view would keep the agent's own object, such as the member of an Enum.
    if (roles := _roles.get(kind)) and _get_role(event) not in roles:
        return False
    if not isinstance(event, ToolCallResult):
        return True
    return type(event.content) is str and len(event.content) <= MAX_DEFERRED_TEXT_CHARS


def split_groups(events: Sequence[Event], starts: Sequence[int]) -> list[Sequence[Event]]:
    """Return the groups of the events, which begin at these indexes."""
    return [events[start:stop] for start, stop in pairwise((*starts, len(events)))]


def encode_groups(groups: Sequence[Sequence[Event]]) -> Encoded:
    """Encode groups of redacted events that were deferred, as `encode_storable` does one by one.

    A group is one event, consecutive deltas of one message or call, or these and the event that ends it.
    """
    events = [event for group in groups for event in group]
    lines = encode_stamped(events)
    if lines is None:
        return Encoded([encode_storable(event) for event in events])
    return Encoded(lines, events=_join_groups(groups))


def _join_groups(groups: Sequence[Sequence[Event]]) -> list[Event]:
    """Return the events of all groups, with the deltas of a group as one."""
    joined: list[Event] = []
    for group in groups:
        # A delta that was held back before may have metadata. A fold keeps that of the last one only.
        if (
            len(group) > 1
            and type(group[-1]) in DELTA_TYPES
            and set(map(type, map(_get_metadata, group))) == _NO_METADATA
        ):
            first: Any = group[0]
            joined.append(replace(first, delta="".join(map(_get_delta, group))))
        else:
            joined += group
    return joined


def encode_stamped(events: Sequence[Event]) -> list[bytes] | None:
    """Return the lines of redacted events, with the current time; None if one of them cannot be stored as it is."""
    now = time.time_ns() // 1_000_000
    stamped = [
        event if type(event) in UNSTAMPED_TYPES or event.timestamp is not None else replace(event, timestamp=now)
        for event in events
    ]
    return encode_together(stamped)


def encode_deltas(deltas: Sequence[Delta]) -> Encoded:
    """Encode redacted deltas of one message or call of the agent itself, which have no other fields. The text of a message is joined."""
    lines = encode_together(deltas)
    if not lines:
        return Encoded([encode_storable(delta) for delta in deltas])
    first = deltas[0] if len(deltas) == 1 else replace(deltas[0], delta="".join(map(_get_delta, deltas)))
    text = JoinedText(first.message_id, first.delta) if type(first) is TextMessageContent else None
    return Encoded(lines, text, [first])


def encode_together(events: Sequence[Event]) -> list[bytes] | None:
    """Return the lines of the events; None if one of them cannot be stored as it is."""
    try:
        lines = list(map(encode_event, events))
    except UNENCODABLE_ERRORS:
        return None
    return lines if max(map(len, lines), default=0) <= MAX_EVENT_BYTES else None
