"""The conversation as another server tells it, kept as one entry (`kept.py`) that `ThreadView` puts into its transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ambient_runner.projections.kept import MESSAGES
from ambient_runner.protocol.events import Custom, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Restated", "restate", "restated"]


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
