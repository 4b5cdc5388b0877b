"""A POST to a thread that the server does not have in memory: after a restart, with a history of up to a million events."""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.history import Start, extend_thread, measure_start, warm_up
from benchmarks.report import Section, at_most, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

LIMIT_MS = 15.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Lengths of the history in runs, the deltas of a run, and the restarts at each length."""

    runs: tuple[int, ...]
    deltas: int
    rounds: int


PLANS = Plans(
    smallest=Plan(runs=(2,), deltas=10, rounds=1),
    quick=Plan(runs=(10, 100), deltas=1_000, rounds=2),
    full=Plan(runs=(100, 500, 1_000), deltas=1_000, rounds=7),
)


def count_steps(plan: Plan) -> int:
    return plan.runs[-1] + plan.rounds * len(plan.runs)


@dataclass(kw_only=True)
class Starts:
    """First runs after a restart, with a history of so many runs and events."""

    runs: int
    events: int
    cold: list[Start] = field(default_factory=list[Start])
    warm: list[Start] = field(default_factory=list[Start])
    """The next POST to the same thread."""
    new: list[Start] = field(default_factory=list[Start])
    """A POST to a new thread, in the same process."""


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> list[Starts]:
    """Extend one thread, and restart the server at each length."""
    store, thread, built, found = scratch / "cold.db", "cold", 0, list[Starts]()
    for runs in plan.runs:
        with start_server("ambient", scratch, store=store) as server:
            extend_thread(server.port, thread, runs - built, plan.deltas, step)
        built = runs
        starts = Starts(runs=runs, events=runs * plan.deltas)
        for _ in range(plan.rounds):
            with restart_server(scratch, store, thread, starts):
                step()
        found.append(starts)
    return found


@contextmanager
def restart_server(scratch: Path, store: Path, thread: str, starts: Starts) -> Generator[Server]:
    """Restart the server. Measure the first and the second POST to the thread, and one to a new thread, before anything else."""
    with start_server("ambient", scratch, store=store) as server:
        warm_up(server)
        starts.new.append(measure_start(server))
        starts.cold.append(measure_start(server, thread))
        starts.warm.append(measure_start(server, thread))
        yield server


_EXPLANATION = """\
All messages of the checkpoint are read and decoded before RUN_STARTED: after 1,000 runs 3 to 5 ms of CPU to read 4 MB and 2 to 3 ms to \
decode and index them; entries after the checkpoint take up to 3 ms, and converting all messages, after RUN_STARTED, 2 ms. Next: store \
the ids beside the parts, and read the parts once RUN_STARTED is sent. BLOB handles, a memory-mapped file, and reading while the lease is \
acquired took as long."""


def build_section(found: Sequence[Starts]) -> Section:
    """Return the table, and the goal that the history does not count."""
    return Section(
        explanation=_EXPLANATION,
        title="POST to a thread that is not in memory",
        how=f"From the POST to RUN_STARTED, on a server that was restarted and has answered other threads since; medians of "
        f"{len(found[0].cold)} restarts at each length.",
        columns=("history", "first POST, ms", "range", "CPU ms", "second POST, ms", "new thread, ms", "CPU ms"),
        rows=[_build_row(starts) for starts in found],
        goals=[
            at_most(
                f"POST to RUN_STARTED, not in memory, after {starts.runs:,} runs",
                median_ms(starts.cold),
                LIMIT_MS,
                "ms",
            )
            for starts in found
        ],
    )


def _build_row(starts: Starts) -> list[str]:
    return [
        f"{starts.runs:,} runs, {starts.events:,} deltas",
        f"{median_ms(starts.cold):.1f}",
        spread([start.ms for start in starts.cold]),
        f"{median_cpu_ms(starts.cold):.1f}",
        f"{median_ms(starts.warm):.1f}",
        f"{median_ms(starts.new):.1f}",
        f"{median_cpu_ms(starts.new):.1f}",
    ]


def median_ms(starts: Sequence[Start]) -> float:
    """Return the median time to RUN_STARTED."""
    return statistics.median(start.ms for start in starts)


def median_cpu_ms(starts: Sequence[Start]) -> float:
    """Return the median CPU time of a run."""
    return statistics.median(start.cpu_ms for start in starts)
