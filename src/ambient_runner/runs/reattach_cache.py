"""Events that re-open a run for a reader that joins in its middle, and the points of recent runs that they are folded from.

Without points every reader that resumes would fold the run from its start. After a network failure many resume at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.protocol.events import RunStarted
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.event_reader import read_run_structure

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import RunInfo, ThreadKey
    from ambient_runner.protocol.events import Event

__all__ = ["ReopeningPoints"]

_MAX_RUNS = 256
_MAX_POINTS = 64
"""Points of one run. When there are more, every second one is dropped and the distance between them doubles."""
_MIN_DISTANCE = 1024
"""Entries between two points of a run."""


class _Point(NamedTuple):
    seq: int
    events: list[Event]
    """RUN_STARTED and an empty START for everything that is open after this entry."""


class _RunPoints:
    def __init__(self) -> None:
        self._points: list[_Point] = []
        self._distance = _MIN_DISTANCE

    def newest_before(self, seq: int) -> _Point | None:
        """Return the newest point that is not after this entry."""
        at = bisect_right(self._points, seq, key=lambda point: point.seq)
        return self._points[at - 1] if at else None

    def is_due(self, seq: int) -> bool:
        return not self._points or seq >= self._points[-1].seq + self._distance

    def add(self, point: _Point) -> None:
        self._points.append(point)
        if len(self._points) > _MAX_POINTS:
            self._points = self._points[1::2]
            self._distance *= 2


class ReopeningPoints:
    """Points of the runs that were resumed most recently. Entries never change, so points stay true while their run is stored."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _RunPoints] = OrderedDict()

    async def reopen_events(self, ledger: Ledger, key: ThreadKey, after: int) -> list[Event]:
        """Return RUN_STARTED and an empty START for everything that is open after entry `after`; nothing between runs."""
        run = await ledger.find_run_at(key, after)
        if run is None or (run.last and run.last <= after):
            return []
        return await self._fold_run(ledger, run, after)

    async def _fold_run(self, ledger: Ledger, run: RunInfo, after: int) -> list[Event]:
        points = self._points_of(run)
        known = points.newest_before(after)
        repairer = Repairer(run.thread.id, run.run_id)
        started: list[Event] = []

        def feed(events: list[Event]) -> None:
            for event in events:
                if isinstance(event, RunStarted):
                    started.append(event)
                repairer.feed(event)

        feed(known.events if known else [])
        begin = known.seq if known else 0
        async with aclosing(read_run_structure(ledger, run, after=begin, until=after)) as batches:
            async for last, events in batches:
                feed(events)
                if started and points.is_due(last):
                    points.add(_Point(last, [*started, *repairer.reopening_events()]))
        return [*started, *repairer.reopening_events()] if started else []

    def _points_of(self, run: RunInfo) -> _RunPoints:
        found = self._runs.setdefault(run.key, _RunPoints())
        self._runs.move_to_end(run.key)
        if len(self._runs) > _MAX_RUNS:
            self._runs.popitem(last=False)
        return found
