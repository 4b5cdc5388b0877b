"""Bursts of a server whose environment has many secrets: `ambient serve` with none of ours, and with 200."""

from __future__ import annotations

import statistics
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.burst import Burst, run_burst
from benchmarks.redaction import known_values
from benchmarks.report import Cost, Goal, Section, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_server
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

SECRETS = 200
WORK = Workload(count=20_000, shape="forty")
WANTED_SHARE = 0.75
NONE, MANY, ADAPTER = "no secrets", f"{SECRETS} secrets", "(a), which redacts nothing"
PATH = "/agents/bench"
PLANS = Plans(smallest=1, quick=4, full=15)


def count_steps(rounds: int) -> int:
    return 3 * (rounds + 1)


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Burst]]:
    """Measure the servers in turn, in rotated order. The first round is a warm-up and is not counted."""
    bursts = defaultdict[str, list[Burst]](list)
    secrets = {f"BENCH_{number}_API_KEY": value for number, value in enumerate(known_values(SECRETS))}
    with ExitStack() as stack:
        servers: list[tuple[str, Server]] = [
            (NONE, stack.enter_context(start_server("ambient", scratch))),
            (MANY, stack.enter_context(start_server("ambient", scratch, secrets))),
            (ADAPTER, stack.enter_context(start_server("adapter", scratch))),
        ]
        for turn in range(rounds + 1):
            for title, server in (*servers[turn % 3 :], *servers[: turn % 3]):
                burst = run_burst(server, WORK, PATH)
                if turn:
                    bursts[title].append(burst)
                step()
    return {title: bursts[title] for title, _ in servers}


def build_section(bursts: Mapping[str, Sequence[Burst]]) -> Section:
    """Return the table and the goal for servers with many secrets."""
    rates = {title: statistics.median(burst.rate for burst in found) for title, found in bursts.items()}
    costs = {title: _cpu_microseconds(found) for title, found in bursts.items()}
    share = costs[NONE] / costs[MANY]
    return Section(
        title=f"{SECRETS} secrets, deltas of 40 characters",
        how=f"`ambient serve` without and with {SECRETS} secrets in its environment, runs of {WORK.count:,} deltas of prose; medians of "
        f"{len(bursts[NONE])} rounds, in turn. The goal is about CPU, which a busy machine changes least.",
        columns=("", "events/s", "range", "CPU µs/event", "times (a)"),
        rows=[
            [
                title,
                f"{rates[title]:,.0f}",
                spread([burst.rate for burst in found], 0),
                f"{costs[title]:.1f}",
                f"{rates[title] / rates[ADAPTER]:.1f}",
            ]
            for title, found in bursts.items()
        ],
        goals=[
            Goal(
                what=f"{SECRETS} secrets against none, events per CPU second",
                wanted=f"at least {WANTED_SHARE:.0%}",
                measured=f"{share:.0%}",
                met=share >= WANTED_SHARE,
            )
        ],
        costs=[
            Cost(what=f"deltas of 40 characters with {SECRETS} secrets", rate=rates[MANY], plain_rate=rates[NONE]),
        ],
    )


def _cpu_microseconds(bursts: Sequence[Burst]) -> float:
    return sum(burst.cpu for burst in bursts) / sum(burst.events for burst in bursts) * 1e6
