"""Resident memory over 50 long runs on 50 threads: it must not grow with what was sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.burst import WORK
from benchmarks.client import count_events, run_workload
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import start_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LIMIT_MB = 50.0


PLANS = Plans(smallest=1, quick=10, full=50)


def count_steps(runs: int) -> int:
    return runs + 1


def measure(scratch: Path, runs: int, step: Callable[[], None]) -> list[float]:
    """Return the resident megabytes after the warm-up run, after each further run, and at the end."""
    with start_servers(["ambient"], scratch) as (server,):
        sizes = list[float]()
        for _ in range(runs + 1):
            count_events(run_workload(server.port, WORK), WORK)
            sizes.append(server.rss() / 1e6)
            step()
        time.sleep(1)
        return [*sizes, server.rss() / 1e6]


def build_section(sizes: Sequence[float]) -> Section:
    """Return the table and the goal for memory."""
    growth = sizes[-1] - sizes[0]
    return Section(
        title=f"Memory over {len(sizes) - 2} runs of 20,000 deltas",
        how="Resident memory of (c) over sequential runs, each on its own thread; the first is a warm-up.",
        columns=("", "MB"),
        rows=[
            ["after the warm-up run", f"{sizes[0]:.1f}"],
            ["maximum", f"{max(sizes):.1f}"],
            ["at the end", f"{sizes[-1]:.1f}"],
            ["growth", f"{growth:+.1f}"],
        ],
        goals=[
            Goal(
                what="growth of resident memory",
                wanted=f"under {LIMIT_MB:g} MB",
                measured=f"{growth:+.1f} MB",
                met=growth < LIMIT_MB,
            )
        ],
    )
