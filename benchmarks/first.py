"""Time to the first event: from the POST to RUN_STARTED."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.client import count_events, run_workload
from benchmarks.report import Goal, Section, percentile
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WORK = Workload(count=1)
ORDER = ("adapter", "ambient")
WARM_UP = 20
WITHIN_MS = 5.0


PLANS = Plans(smallest=2, quick=50, full=200)


def count_steps(runs: int) -> int:
    return runs + WARM_UP


def measure(scratch: Path, runs: int, step: Callable[[], None], names: Sequence[str] = ORDER) -> dict[str, list[float]]:
    """Return the milliseconds until RUN_STARTED of each run. The servers are measured in turn."""
    times = defaultdict[str, list[float]](list)
    with start_servers(names, scratch) as servers:
        for turn in range(WARM_UP + runs):
            for server in servers:
                response = run_workload(server.port, WORK)
                count_events(response, WORK)
                if turn >= WARM_UP:
                    times[server.name].append(response.seconds_until(b"RUN_STARTED") * 1000)
            step()
    return dict(times)


def build_section(times: Mapping[str, Sequence[float]]) -> Section:
    """Return the table and the goals for the first event."""
    return Section(
        title="From POST to RUN_STARTED",
        how=f"{len(times['adapter'])} runs each, sequentially, each on a new connection and a new thread.",
        columns=("", "p50 ms", "p99 ms"),
        rows=[[TITLES[name], *(f"{percentile(times[name], at):.2f}" for at in (50, 99))] for name in times],
        goals=[_build_goal(times, at) for at in (50, 99)] if "ambient" in times else [],
    )


def _build_goal(times: Mapping[str, Sequence[float]], at: int) -> Goal:
    difference = percentile(times["ambient"], at) - percentile(times["adapter"], at)
    return Goal(
        what=f"POST to RUN_STARTED, (c) beyond (a), p{at}",
        wanted=f"within {WITHIN_MS:g} ms",
        measured=f"{difference:+.2f} ms",
        met=difference <= WITHIN_MS,
    )
