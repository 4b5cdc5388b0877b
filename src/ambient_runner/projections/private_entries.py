"""Private entries: what an adapter stores with a thread and no reader receives.

They are CUSTOM events with reserved names, stored among the run's events, because only there are they fenced, redacted, retained and erased
like everything else. Whoever turns entries into something for a reader checks here first. There are two kinds: a value for the adapter's
next run, and a correction of the thread's history by another server, which `ThreadView` applies to its transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ambient_runner.protocol.events import Custom, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Event

__all__ = ["MEMORY", "MESSAGES", "Restated", "is_kept", "is_kept_line", "may_hold_kept", "restate", "restated"]

MEMORY = "ambient:memory"
"""A value for the next run (`bridges.base.remember`)."""
MESSAGES = "ambient:messages"
"""The messages of the thread as the server behind a RemoteBridge tells them (`restated.restate`)."""

_HEADS = tuple(b'{"type":"CUSTOM","name":"%b","value":' % name.encode() for name in (MEMORY, MESSAGES))
_COMMON = b'{"type":"CUSTOM","name":"ambient:me'


def is_kept(event: Event) -> bool:
    """Whether the event is something an adapter keeps."""
    return type(event) is Custom and event.name in (MEMORY, MESSAGES)


def is_kept_line(line: bytes) -> bool:
    """Whether a stored line is: these are stored without a time or anything else before their name, so that this can be told."""
    return line.startswith(_HEADS)


def may_hold_kept(frames: bytes) -> bool:
    """Whether there may be such a line in these bytes. One search for many lines, because there nearly never is."""
    return _COMMON in frames


class Restated(msgspec.Struct, frozen=True):
    """These messages are so, in this order; those named in `gone` are no more; every other stays behind the one it followed."""

    messages: list[Message]
    gone: list[str] = []


def restate(messages: Sequence[Message], gone: Sequence[str] = ()) -> Custom:
    """The event that says so. It is stored where it is yielded; clients see its effect in the next MESSAGES_SNAPSHOT."""
    return Custom(name=MESSAGES, value=msgspec.to_builtins(Restated(list(messages), list(gone))))


def restated(event: Custom) -> Restated | None:
    """What such an event says; None for other events, and for one that cannot be understood."""
    if event.name != MESSAGES:
        return None
    try:
        return msgspec.convert(event.value, Restated)
    except msgspec.ValidationError:
        return None
