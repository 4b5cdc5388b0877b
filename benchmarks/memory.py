"""Whether the server keeps what it has already sent: resident memory over 50 long runs on 50 threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.burst import WORK
from benchmarks.client import ask, events_of
from benchmarks.report import Goal, Section
from benchmarks.servers import running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LIMIT_MB = 50.0


def measure(scratch: Path, runs: int, step: Callable[[], None]) -> list[float]:
    """Megabytes resident after the warm-up run and after each run that followed."""
    with running(["ambient"], scratch) as (server,):
        sizes = list[float]()
        for _ in range(runs + 1):
            events_of(ask(server.port, WORK), WORK)
            sizes.append(server.rss() / 1e6)
            step()
        time.sleep(1)
        return [*sizes, server.rss() / 1e6]


def section(sizes: Sequence[float]) -> Section:
    """The table and the goal on memory."""
    grown = sizes[-1] - sizes[0]
    return Section(
        title=f"Memory over {len(sizes) - 2} runs of 20,000 deltas",
        how="Resident memory of (c) over sequential runs, each on its own thread; the first is a warm-up.",
        columns=("", "MB"),
        rows=[
            ["after the warm-up run", f"{sizes[0]:.1f}"],
            ["maximum", f"{max(sizes):.1f}"],
            ["at the end", f"{sizes[-1]:.1f}"],
            ["growth", f"{grown:+.1f}"],
        ],
        goals=[
            Goal(
                what="growth of resident memory",
                wanted=f"under {LIMIT_MB:g} MB",
                measured=f"{grown:+.1f} MB",
                met=grown < LIMIT_MB,
            )
        ],
    )
