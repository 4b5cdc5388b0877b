"""Bursts of a server whose environment has many secrets: `ambient serve` with none of ours, and with 200."""

from __future__ import annotations

import statistics
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.burst import Burst, run_burst
from benchmarks.redaction import secret_variables
from benchmarks.report import Goal, Section, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_server
from benchmarks.texts import TITLES
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

SECRETS = 200
SHAPES = ("forty", "base64")
WANTED_SHARE = 0.75
NONE, MANY, ADAPTER = "no secrets", f"{SECRETS} secrets", "(a), which redacts nothing"
PATH = "/agents/bench"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Deltas of a burst, and rounds of all bursts."""

    count: int
    rounds: int


PLANS = Plans(smallest=Plan(count=100, rounds=0), quick=Plan(count=20_000, rounds=4), full=Plan(count=20_000, rounds=9))


def count_steps(plan: Plan) -> int:
    return 3 * len(SHAPES) * (plan.rounds + 1)


Bursts = dict[tuple[str, str], list[Burst]]
"""Bursts by shape and server."""


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Bursts:
    """Measure the servers in turn, in rotated order. The first round is a warm-up and is not counted, unless it is the only one."""
    bursts = defaultdict[tuple[str, str], list[Burst]](list)
    with ExitStack() as stack:
        servers: list[tuple[str, Server]] = [
            (NONE, stack.enter_context(start_server("ambient", scratch))),
            (MANY, stack.enter_context(start_server("ambient", scratch, secret_variables(SECRETS)))),
            (ADAPTER, stack.enter_context(start_server("adapter", scratch))),
        ]
        for turn in range(plan.rounds + 1):
            for shape in SHAPES:
                for title, server in (*servers[turn % 3 :], *servers[: turn % 3]):
                    burst = run_burst(server, Workload(count=plan.count, shape=shape), PATH)
                    if turn or not plan.rounds:
                        bursts[shape, title].append(burst)
                    step()
    return {(shape, title): bursts[shape, title] for shape in SHAPES for title, _ in servers}


def build_section(bursts: Bursts) -> Section:
    """Return the table and the goals for servers with many secrets."""
    rates = {key: statistics.median(burst.rate for burst in found) for key, found in bursts.items()}
    costs = {key: _cpu_microseconds(found) for key, found in bursts.items()}
    return Section(
        title=f"{SECRETS} secrets, deltas of 40 characters",
        how=f"`ambient serve` without and with {SECRETS} secrets in its environment, runs of "
        f"{bursts[SHAPES[0], ADAPTER][0].events:,} events; medians of {len(bursts[SHAPES[0], NONE])} rounds, in turn. "
        "The goals are about CPU, which a busy machine changes least.",
        columns=("", "events/s", "range", "CPU µs/event", "times (a)"),
        rows=[
            [
                f"{TITLES[shape]}, {title}",
                f"{rates[shape, title]:,.0f}",
                spread([burst.rate for burst in found], 0),
                f"{costs[shape, title]:.1f}",
                f"{rates[shape, title] / rates[shape, ADAPTER]:.1f}",
            ]
            for (shape, title), found in bursts.items()
        ],
        goals=[_build_goal(shape, costs[shape, NONE] / costs[shape, MANY]) for shape in SHAPES],
    )


def _build_goal(shape: str, share: float) -> Goal:
    return Goal(
        what=f"{SECRETS} secrets against none, {TITLES[shape]}, events per CPU second",
        wanted=f"at least {WANTED_SHARE:.0%}",
        measured=f"{share:.0%}",
        met=share >= WANTED_SHARE,
    )


def _cpu_microseconds(bursts: Sequence[Burst]) -> float:
    return sum(burst.cpu for burst in bursts) / sum(burst.events for burst in bursts) * 1e6
