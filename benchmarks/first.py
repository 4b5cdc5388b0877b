"""How long a person waits for the first sign of life: from the POST to RUN_STARTED."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.client import ask, events_of
from benchmarks.report import Goal, Section, percentile
from benchmarks.servers import TITLES, running
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WORK = Workload(count=1)
ORDER = ("adapter", "ambient")
WARM_UP = 20
WITHIN_MS = 5.0


def measure(scratch: Path, runs: int, step: Callable[[], None], names: Sequence[str] = ORDER) -> dict[str, list[float]]:
    """Milliseconds until RUN_STARTED, run by run, the contenders taking turns."""
    waits = defaultdict[str, list[float]](list)
    with running(names, scratch) as servers:
        for turn in range(WARM_UP + runs):
            for server in servers:
                answer = ask(server.port, WORK)
                events_of(answer, WORK)
                if turn >= WARM_UP:
                    waits[server.name].append(answer.seconds_until(b"RUN_STARTED") * 1000)
            step()
    return dict(waits)


def section(waits: Mapping[str, Sequence[float]]) -> Section:
    """The table and the goal on the first event."""
    return Section(
        title="From POST to RUN_STARTED",
        how=f"{len(waits['adapter'])} runs each, sequentially, each on a new connection and a new thread.",
        columns=("", "p50 ms", "p99 ms"),
        rows=[[TITLES[name], *(f"{percentile(waits[name], at):.2f}" for at in (50, 99))] for name in waits],
        goals=[_goal(waits, at) for at in (50, 99)] if "ambient" in waits else [],
    )


def _goal(waits: Mapping[str, Sequence[float]], at: int) -> Goal:
    more = percentile(waits["ambient"], at) - percentile(waits["adapter"], at)
    return Goal(
        what=f"POST to RUN_STARTED, (c) beyond (a), p{at}",
        wanted=f"within {WITHIN_MS:g} ms",
        measured=f"{more:+.2f} ms",
        met=more <= WITHIN_MS,
    )
