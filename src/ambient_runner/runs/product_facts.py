"""Facts of products: an application stores them with a thread (`Runner.append_fact`) and decides what clients see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.projections.projectors import add_projector, own_events_only
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ambient_runner.projections.projectors import StoredFact
    from ambient_runner.protocol.events import Custom, Event

__all__ = ["register_projector"]


def register_projector(owner: str, projector: Callable[[StoredFact], Iterable[Custom]]) -> None:
    """Register the function that returns what clients see of an owner's facts, as CUSTOM events, for every server of this process.

    It gets one StoredFact at a time. It must not block, and its events must not be named `ambient:…`. If it raises, or returns anything
    else, the error is logged and clients receive nothing of that fact. Facts of an owner without a projector are never sent.
    Raises: ConfigError if the owner is the server's own, or has a projector already.
    """
    checked = own_events_only(owner, projector)

    def project(fact: StoredFact) -> Iterable[Event]:
        events: list[Event] = []
        with isolate(f"projecting entry {fact.seq} ({fact.kind}) of {owner}; clients receive nothing of it"):
            events.extend(checked(fact))
        return events

    add_projector(owner, project)
