"""One run of 20,000 deltas as fast as it goes: events per second, and what an event costs the server."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import ask, events_of
from benchmarks.report import Goal, Section
from benchmarks.servers import TITLES, running
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=20_000)
ORDER = ("adapter", "sse", "ambient", "bare")
# Work a server puts off until after the answer (checkpoints, say) is counted too.
SETTLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Burst:
    events: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


def measure(
    scratch: Path, rounds: int, step: Callable[[], None], names: Sequence[str] = ORDER
) -> dict[str, list[Burst]]:
    """Let the contenders take turns; the first round warms up and is not counted. The order moves on each round."""
    bursts = defaultdict[str, list[Burst]](list)
    with running(names, scratch) as servers:
        for turn in range(rounds + 1):
            shift = turn % len(servers)
            for server in (*servers[shift:], *servers[:shift]):
                burst = _burst(server)
                if turn:
                    bursts[server.name].append(burst)
                step()
    return {name: bursts[name] for name in names}


def _burst(server: Server) -> Burst:
    used = server.cpu_seconds()
    answer = ask(server.port, WORK)
    time.sleep(SETTLE_SECONDS)
    return Burst(events=events_of(answer, WORK), seconds=answer.seconds, cpu=server.cpu_seconds() - used)


def section(bursts: Mapping[str, Sequence[Burst]]) -> Section:
    """The table and the two goals on speed."""
    return Section(
        title="A run of 20,000 deltas",
        how="From the first byte of the request to the last byte of the response; "
        f"medians of {len(bursts['adapter'])} rounds, CPU over all rounds. "
        "The client checks that every delta arrives once and in order.",
        columns=("", "events/s", "range", "CPU µs/event", "times (a)"),
        rows=[_row(name, bursts) for name in bursts],
        goals=[
            _goal("(c) against (a), events per second", 6.0, _ratio(bursts, "adapter")),
            _goal("(c) against (d), events per second", 1.0, _ratio(bursts, "bare")),
        ]
        if "ambient" in bursts
        else [],
    )


def _row(name: str, bursts: Mapping[str, Sequence[Burst]]) -> list[str]:
    mine = bursts[name]
    rates = sorted(burst.rate for burst in mine)
    cost = sum(burst.cpu for burst in mine) / sum(burst.events for burst in mine) * 1e6
    spread = f"{rates[0]:,.0f} to {rates[-1]:,.0f}"
    return [
        TITLES[name],
        f"{_median_rate(mine):,.0f}",
        spread,
        f"{cost:.1f}",
        f"{_ratio(bursts, 'adapter', name):.1f}",
    ]


def _ratio(bursts: Mapping[str, Sequence[Burst]], rival: str, name: str = "ambient") -> float:
    """Of the medians, so that a reader can work it out from the table."""
    return _median_rate(bursts[name]) / _median_rate(bursts[rival])


def _median_rate(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.rate for burst in bursts)


def _goal(what: str, wanted: float, ratio: float) -> Goal:
    return Goal(what=what, wanted=f"at least {wanted:g} times", measured=f"{ratio:.2f} times", met=ratio >= wanted)
