"""`PlatformEvent`: a CUSTOM event with a reserved name, `ambient:*`, that this package's own code has created.

The type is the permission to use the name. It does not survive conversion or encoding, so an event of an agent never has it, whatever
its name: it comes as a `Custom`, a model, a mapping or text. `runs/agent_events.py` drops those.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from ambient_runner.errors import RUN_ENDINGS, Draining, LeaseLost, LedgerError, RedactionFailed
from ambient_runner.protocol.events import CUSTOM_PREFIX, BaseEvent, Custom

__all__ = [
    "RESERVED_ERROR_CODES",
    "PlatformEvent",
    "has_reserved_name",
    "is_reserved_name",
    "to_plain_event",
    "to_platform_event",
]

_Value = TypeVar("_Value")

RESERVED_ERROR_CODES = frozenset(
    {*RUN_ENDINGS, *(kind.code for kind in (LedgerError, LeaseLost, RedactionFailed, Draining))}
)
"""Codes of RUN_ERROR that tell the state of this server or its store. No agent knows it."""


class PlatformEvent(Custom, tag="CUSTOM", frozen=True, kw_only=True):
    """A CUSTOM event with a reserved name. The server stores it as a `Custom` event with the same fields."""


def is_reserved_name(name: str) -> bool:
    """Return True for a name under `ambient:`, in any case. Whitespace and invisible characters do not make it another one."""
    seen = "".join(character for character in name if character.isprintable() and not character.isspace())
    return seen.casefold().startswith(CUSTOM_PREFIX)


def has_reserved_name(event: BaseEvent) -> bool:
    """Return True for a CUSTOM event with a name that is reserved for this server."""
    return isinstance(event, Custom) and is_reserved_name(event.name)


def to_plain_event(value: _Value) -> _Value | Custom:
    """Return the value; a `PlatformEvent` as a `Custom` event with the same fields, which has no permission to use its name."""
    if not isinstance(value, PlatformEvent):
        return value
    return Custom(**structs.asdict(value))


def to_platform_event(event: Custom) -> PlatformEvent:
    """Return the event with the permission to use its reserved name."""
    return PlatformEvent(**structs.asdict(event))
