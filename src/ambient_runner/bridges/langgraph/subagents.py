"""The subgraphs of a run as lanes. A subgraph is told as a subagent from the first thing it does to the end of the node it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import Owner

__all__ = ["Lanes", "Namespace"]

Namespace = tuple[str, ...]
"""Where in a run something happens: the names of the nodes around it, each with the id of its task."""


class Lanes:
    """Namespaces of a run by the lane that tells them. The graph itself has no lane."""

    def __init__(self, composer: Composer) -> None:
        self._say = composer
        self._lanes: dict[Namespace, str] = {}
        self._counts: dict[Namespace, int] = {}
        self._calls: dict[str, tuple[str, str]] = {}

    def of(self, ns: Namespace) -> Owner:
        return self._lanes.get(ns)

    def called(self, place: Namespace, given: Any, told: Callable[[str], str]) -> None:
        """A node begins. When it was sent one tool call, a subgraph in it works for that call. `told` gives a call's id in the thread."""
        call = cast("Mapping[str, Any]", given).get("tool_call") if isinstance(given, Mapping) else None
        if isinstance(call, Mapping) and "id" in call and "name" in call:
            self._calls[place[-1]] = (told(str(call["id"])), str(call["name"]))  # pyright: ignore[reportUnknownArgumentType]

    def call_of(self, place: Namespace) -> str | None:
        """The tool call that the node at this place carries out, if it is known."""
        return self._calls.get(place[-1], (None, ""))[0]

    def enter(self, ns: Namespace) -> list[Event]:
        """The beginning of the lane of a namespace, and of those around it, if they have not begun."""
        if not ns or ns in self._lanes:
            return []
        events = self.enter(ns[:-1])
        count = self._counts[ns] = self._counts.get(ns, 0) + 1
        lane = self._lanes[ns] = "|".join(ns) + (f"~{count}" if count > 1 else "")
        call, tool = self._calls.get(ns[-1], (None, ""))
        return [
            *events,
            *self._say.subagent(lane, tool or _name(ns), parent=self.of(ns[:-1]), parent_tool_call_id=call),
        ]

    def leave(self, place: Namespace, *, has_failed: bool = False) -> list[Event]:
        """The end of every lane in the node at this place, the innermost first. Why one failed is in the log."""
        error = "The subgraph failed." if has_failed else None
        inside = [ns for ns in self._lanes if ns[: len(place)] == place]
        return [
            event
            for ns in sorted(inside, key=len, reverse=True)
            for event in self._say.end_subagent(self._lanes.pop(ns), error=error)
        ]


def _name(ns: Namespace) -> str:
    """The node's name. A node that calls several graphs numbers them."""
    name = ns[-1].partition(":")[0]
    return _name(ns[:-1]) if name.isdigit() and len(ns) > 1 else name
