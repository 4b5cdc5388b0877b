"""`PlatformEvent`: a CUSTOM event with a reserved name, `ambient:*`, that this package's own code has created.

The type is the permission to use the name. It does not survive conversion or encoding, so an event of an agent never has it, whatever
its name: it comes as a `Custom`, a model, a mapping or text. `runs/agent_events.py` drops those.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from ambient_runner.protocol.events import CUSTOM_PREFIX, BaseEvent, Custom

__all__ = ["PlatformEvent", "has_reserved_name", "to_plain_event", "to_platform_event"]

_Value = TypeVar("_Value")


class PlatformEvent(Custom, tag="CUSTOM", frozen=True, kw_only=True):
    """A CUSTOM event with a reserved name. The server stores it as a `Custom` event with the same fields."""


def has_reserved_name(event: BaseEvent) -> bool:
    """Return True for a CUSTOM event with a name that is reserved for this server."""
    return isinstance(event, Custom) and event.name.startswith(CUSTOM_PREFIX)


def to_plain_event(value: _Value) -> _Value | Custom:
    """Return the value; a `PlatformEvent` as a `Custom` event with the same fields, which has no permission to use its name."""
    if not isinstance(value, PlatformEvent):
        return value
    return Custom(**structs.asdict(value))


def to_platform_event(event: Custom) -> PlatformEvent:
    """Return the event with the permission to use its reserved name."""
    return PlatformEvent(**structs.asdict(event))
