"""Memory of a server whose threads do not fit: thousands of runs over hundreds of threads with a history, in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import count_events, run_workload
from benchmarks.report import Section, at_most
from benchmarks.scene import Plans
from benchmarks.servers import start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LIMIT_MB = 256.0
"""Megabytes that a process stays within with the default `view_cache`, as `docs/reference/config.md` says."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Threads, the runs of each, and the deltas of a run."""

    threads: int
    runs: int
    deltas: int


PLANS = Plans(
    smallest=Plan(threads=3, runs=2, deltas=10),
    quick=Plan(threads=150, runs=4, deltas=2_000),
    full=Plan(threads=300, runs=10, deltas=2_000),
)


def count_steps(plan: Plan) -> int:
    return plan.runs


@dataclass(frozen=True, kw_only=True)
class WorkingSet:
    """Resident megabytes at the start and after each turn of all threads."""

    plan: Plan
    sizes: Sequence[float]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> WorkingSet:
    """Run on all threads in turn, so that each is asked for when all others were asked for since."""
    work = Workload(count=plan.deltas)
    with start_servers(["ambient"], scratch) as (server,):
        sizes = [server.rss() / 1e6]
        for _ in range(plan.runs):
            for number in range(plan.threads):
                count_events(run_workload(server.port, work, "/?snapshots=0", thread=f"thread-{number}"), work)
            sizes.append(server.rss() / 1e6)
            step()
    return WorkingSet(plan=plan, sizes=sizes)


def build_section(found: WorkingSet) -> Section:
    """Return the table and the goal for memory that is bounded."""
    plan, sizes = found.plan, found.sizes
    middle = len(sizes) // 2
    return Section(
        title="Memory over threads that do not fit",
        how=f"Resident memory over {plan.threads * plan.runs:,} runs of {plan.deltas:,} deltas on {plan.threads} threads in turn.",
        columns=("", "MB"),
        rows=[
            ["at the start", f"{sizes[0]:.0f}"],
            [f"after {plan.threads:,} runs", f"{sizes[1]:.0f}"],
            [f"after {plan.threads * middle:,} runs", f"{sizes[middle]:.0f}"],
            [f"after {plan.threads * plan.runs:,} runs", f"{sizes[-1]:.0f}"],
        ],
        goals=[at_most("resident memory over threads that do not fit", max(sizes), LIMIT_MB, "MB", digits=0)],
    )
