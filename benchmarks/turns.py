"""Many active threads, posted to in turn: a run must cost the same whether 32 threads are active or a thousand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import STARTED, count_events, run_workload
from benchmarks.history import extend_thread
from benchmarks.report import Goal, Section, percentile
from benchmarks.scene import Plans
from benchmarks.servers import start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=20)
FACTOR = 1.5


@dataclass(frozen=True, kw_only=True)
class Case:
    """Numbers of active threads, and the history that each of them has."""

    counts: tuple[int, ...]
    runs: int
    deltas: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Cases, and the least number of runs that each count of threads is measured with."""

    cases: tuple[Case, ...]
    posts: int


PLANS = Plans(
    smallest=Plan(cases=(Case(counts=(2, 3), runs=1, deltas=10),), posts=4),
    quick=Plan(cases=(Case(counts=(32, 64, 65, 100), runs=5, deltas=2_000),), posts=100),
    full=Plan(
        cases=(
            Case(counts=(32, 64, 65, 100), runs=10, deltas=2_000),
            Case(counts=(32, 100, 1_000), runs=10, deltas=200),
        ),
        posts=500,
    ),
)


def count_steps(plan: Plan) -> int:
    return sum(2 * len(case.counts) for case in plan.cases)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Runs on so many threads in turn: CPU seconds of a run, and the seconds to RUN_STARTED of each."""

    case: Case
    threads: int
    cpu: float
    started: Sequence[float]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> list[Turns]:
    """Add threads to one server for each case, and measure at each count."""
    return [turns for case in plan.cases for turns in _measure_case(scratch, case, plan.posts, step)]


def _measure_case(scratch: Path, case: Case, posts: int, step: Callable[[], None]) -> list[Turns]:
    found, threads = list[Turns](), list[str]()
    with start_servers(["ambient"], scratch) as (server,):
        for count in case.counts:
            for number in range(len(threads), count):
                extend_thread(server.port, f"turn-{number}", case.runs, case.deltas)
                threads.append(f"turn-{number}")
            step()
            found.append(measure_turns(server, case, threads, posts))
            step()
    return found


def measure_turns(server: Server, case: Case, threads: Sequence[str], posts: int) -> Turns:
    """Post to all threads in turn, as often as it takes for so many runs."""
    _post_to_each(server, threads)
    cpu_before, started = server.cpu_seconds(), list[float]()
    while len(started) < posts:
        started += _post_to_each(server, threads)
    cpu = (server.cpu_seconds() - cpu_before) / len(started)
    return Turns(case=case, threads=len(threads), cpu=cpu, started=started)


def _post_to_each(server: Server, threads: Sequence[str]) -> list[float]:
    responses = [run_workload(server.port, WORK, "/?snapshots=0", thread=thread) for thread in threads]
    for response in responses:
        count_events(response, WORK)
    return [response.seconds_until(STARTED) for response in responses]


def build_section(found: Sequence[Turns]) -> Section:
    """Return the table, and for each history the goal that the largest number of threads costs what the smallest does."""
    return Section(
        title="Many threads in turn",
        how=f"Every thread has the same history; then runs of {WORK.count} deltas on all of them, one after the other. CPU is the "
        "server's, for a run. After a first turn that is not counted.",
        columns=("history, active threads", "CPU ms a run", "POST to RUN_STARTED, p50 ms", "p99 ms"),
        rows=[_build_row(turns) for turns in found],
        goals=[_build_goal([turns for turns in found if turns.case == case]) for case in {t.case: 0 for t in found}],
    )


def _build_row(turns: Turns) -> list[str]:
    times = [seconds * 1000 for seconds in turns.started]
    return [
        f"{turns.case.runs} runs of {turns.case.deltas:,} deltas, {turns.threads:,} threads",
        f"{turns.cpu * 1000:.1f}",
        f"{percentile(times, 50):.1f}",
        f"{percentile(times, 99):.1f}",
    ]


def _build_goal(found: Sequence[Turns]) -> Goal:
    few, worst = found[0], max(found[1:], key=lambda turns: turns.cpu)
    factor = worst.cpu / few.cpu if few.cpu else 0.0
    return Goal(
        what=f"CPU of a run, up to {found[-1].threads:,} active threads ({few.case.deltas:,} deltas) against {few.threads}",
        wanted=f"at most {FACTOR:g} times",
        measured=f"{factor:.2f} times (at {worst.threads:,})",
        met=factor <= FACTOR,
    )
