"""What nodes write to a graph's stream, and what `wiring.py` puts there among it, for `translate.py` to read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.plain import plain_or_name
from ambient_runner.protocol.events import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SILENT", "Dispatched", "Silenced", "named"]

_CUSTOM = "langgraph:custom"
"""The name of what a node writes to its stream without a name."""
SILENT = ("emit-messages", "emit-tool-calls")
"""What a model's metadata may say is not to be heard: its text, its calls."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An event of `adispatch_custom_event`."""

    name: str
    data: Any


@dataclass(frozen=True, slots=True)
class Silenced:
    """A message of a model that is not streamed, and whose metadata say what of it is not to be heard: its node says it without them."""

    id: str
    meta: Mapping[str, Any]


def named(data: Any) -> tuple[str, Any]:
    """The name and value of what a node wrote or dispatched. Names that begin like ours are not for graphs to use."""
    name, value = _CUSTOM, data
    match data:
        case Dispatched():
            name, value = data.name, data.data
        case {"name": str(given), "value": said} if len(cast("Mapping[str, Any]", data)) == 2:
            name, value = given, said
        case _:
            pass
    return f"langgraph:{name}" if name.startswith(OURS) else name, plain_or_name(value)
