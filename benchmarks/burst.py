"""One run of 20,000 deltas without pauses: events per second, and CPU time of the server per event."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import count_events, run_workload
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=20_000)
ORDER = ("adapter", "sse", "ambient", "bare")
# Includes work that a server does after the response, such as checkpoints.
SETTLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Burst:
    events: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


PLANS = Plans(smallest=1, quick=3, full=15)


def count_steps(rounds: int) -> int:
    return (rounds + 1) * len(ORDER)


def measure(
    scratch: Path, rounds: int, step: Callable[[], None], names: Sequence[str] = ORDER
) -> dict[str, list[Burst]]:
    """Measure the servers in turn, in rotated order. The first round is a warm-up and is not counted."""
    bursts = defaultdict[str, list[Burst]](list)
    with start_servers(names, scratch) as servers:
        for turn in range(rounds + 1):
            shift = turn % len(servers)
            for server in (*servers[shift:], *servers[:shift]):
                burst = run_burst(server)
                if turn:
                    bursts[server.name].append(burst)
                step()
    return {name: bursts[name] for name in names}


def run_burst(server: Server, work: Workload = WORK, path: str = "/") -> Burst:
    """Run the workload once. A delta of words that is joined with the next counts as the event that it was."""
    cpu_before = server.cpu_seconds()
    response = run_workload(server.port, work, path)
    time.sleep(SETTLE_SECONDS)
    cpu = server.cpu_seconds() - cpu_before
    return Burst(events=max(count_events(response, work), work.count), seconds=response.seconds, cpu=cpu)


def find_missing() -> str:
    """Return the package that only the benchmarks need."""
    return "" if importlib.util.find_spec("sse_starlette") else "sse-starlette: run `make bench`"


def build_section(bursts: Mapping[str, Sequence[Burst]]) -> Section:
    """Return the table and the two goals for throughput."""
    return Section(
        title="A run of 20,000 deltas",
        how="From the first byte of the request to the last byte of the response; "
        f"medians of {len(bursts['adapter'])} rounds, CPU over all rounds. "
        "The client checks that every delta arrives once and in order.",
        columns=("", "events/s", "range", "CPU µs/event", "times (a)"),
        rows=[_build_row(name, bursts) for name in bursts],
        goals=[
            _build_goal("(c) against (a), events per second", 6.0, _ratio(bursts, "adapter")),
            _build_goal("(c) against (d), events per second", 1.0, _ratio(bursts, "bare")),
        ]
        if "ambient" in bursts
        else [],
    )


def _build_row(name: str, bursts: Mapping[str, Sequence[Burst]]) -> list[str]:
    results = bursts[name]
    rates = sorted(burst.rate for burst in results)
    cost = sum(burst.cpu for burst in results) / sum(burst.events for burst in results) * 1e6
    spread = f"{rates[0]:,.0f} to {rates[-1]:,.0f}"
    return [
        TITLES[name],
        f"{_median_rate(results):,.0f}",
        spread,
        f"{cost:.1f}",
        f"{_ratio(bursts, 'adapter', name):.1f}",
    ]


def _ratio(bursts: Mapping[str, Sequence[Burst]], baseline: str, name: str = "ambient") -> float:
    """Return the ratio of the medians, which readers can recompute from the table."""
    return _median_rate(bursts[name]) / _median_rate(bursts[baseline])


def _median_rate(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.rate for burst in bursts)


def _build_goal(what: str, wanted: float, ratio: float) -> Goal:
    return Goal(what=what, wanted=f"at least {wanted:g} times", measured=f"{ratio:.2f} times", met=ratio >= wanted)
