"""Private entries: events that an adapter stores with a thread and no reader receives.

They are CUSTOM events with reserved names, stored among the run's events, so that the lease, redaction, retention and erasure apply to them
as to every event. Code that renders entries for a reader checks here first. There are two kinds: a value for the adapter's
next run, and a correction of the thread's history by its agent, which `ThreadView` applies to its transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ambient_runner.protocol.events import Custom, Message
from ambient_runner.protocol.reserved_events import PlatformEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Event

__all__ = [
    "HISTORY_EVENT",
    "MEMORY_EVENT",
    "HistoryCorrection",
    "correct_history",
    "is_private",
    "is_private_line",
    "may_contain_correction",
    "may_contain_private",
    "parse_correction",
    "restated_texts",
]

MEMORY_EVENT = "ambient:memory"
"""A value for the next run (`bridges.base.remember`)."""
HISTORY_EVENT = "ambient:messages"
"""The messages of the thread according to its agent (`correct_history`)."""

PRIVATE_LINE_PREFIXES = tuple(
    b'{"type":"CUSTOM","name":"%b","value":' % name.encode() for name in (MEMORY_EVENT, HISTORY_EVENT)
)
"""The beginnings of stored lines that are private entries."""
_KINDS = {"assistant": "text", "reasoning": "reasoning"}
_COMMON_PREFIX = b'{"type":"CUSTOM","name":"ambient:me'
_CORRECTION_PREFIX = b'{"type":"CUSTOM","name":"%b"' % HISTORY_EVENT.encode()


def is_private(event: Event) -> bool:
    """Return True if the event is a private entry."""
    return isinstance(event, Custom) and event.name in (MEMORY_EVENT, HISTORY_EVENT)


def is_private_line(line: bytes) -> bool:
    """Return True if a stored line is a private entry. Private entries are stored without a timestamp, so `name` follows `type`."""
    return line.startswith(PRIVATE_LINE_PREFIXES)


def may_contain_private(frames: bytes) -> bool:
    """Return True if these frames may contain a private entry. One search for many lines, because they rarely do."""
    return _COMMON_PREFIX in frames


def may_contain_correction(lines: bytes) -> bool:
    """Return True if these joined lines may contain a correction of the history."""
    return _CORRECTION_PREFIX in lines


class HistoryCorrection(msgspec.Struct, frozen=True):
    """The corrected messages in their order. Messages named in `gone` are removed; every other one stays behind the message it followed."""

    messages: list[Message]
    gone: list[str] = []


def correct_history(messages: Sequence[Message], removed_ids: Sequence[str] = ()) -> PlatformEvent:
    """Return the event that corrects the history. It is stored where it is yielded; the next MESSAGES_SNAPSHOT shows its effect."""
    correction = HistoryCorrection(list(messages), list(removed_ids))
    return PlatformEvent(name=HISTORY_EVENT, value=msgspec.to_builtins(correction))


def restated_texts(event: Custom) -> dict[tuple[str, str], str]:
    """Return the texts, reasoning and arguments in an event of `correct_history`, by their kind and the id of the message or call."""
    texts: dict[tuple[str, str], str] = {}
    for message in event.value["messages"]:
        role = message["role"]
        if role in _KINDS and (content := message.get("content")):
            texts[_KINDS[role], message["id"]] = content
        for call in message.get("toolCalls", ()):
            texts["call", call["id"]] = call["function"]["arguments"]
    return texts


def parse_correction(event: Custom) -> HistoryCorrection | None:
    """Return the correction in an event; None for other events and for one that cannot be decoded."""
    if event.name != HISTORY_EVENT:
        return None
    try:
        return msgspec.convert(event.value, HistoryCorrection)
    except msgspec.ValidationError:
        return None
