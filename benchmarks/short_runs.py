"""Short runs on new threads: on a schedule that does not wait for the server, and as many as it can do."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import STARTED, build_request, count_events
from benchmarks.history import warm_up
from benchmarks.report import Section, at_least, at_most, percentile, spread
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.streams import open_streams
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=20)
ORDER = ("adapter", "ambient")
RATE = 200  # runs per second
CLIENTS = 16
MAX_CPU_MS, MAX_P99_MS, MIN_RATE = 2.5, 25.0, 450.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Seconds of the schedule, runs of the closed loop, and rounds of both on the same servers.

    A collection of garbage comes every thousand runs or so; the full form meets several.
    """

    seconds: float
    runs: int
    rounds: int


PLANS = Plans(
    smallest=Plan(seconds=0.1, runs=5, rounds=1),
    quick=Plan(seconds=3.0, runs=600, rounds=1),
    full=Plan(seconds=10.0, runs=2_000, rounds=2),
)


def count_steps(plan: Plan) -> int:
    return 2 * plan.rounds * len(ORDER)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Milliseconds from when a run was due to its RUN_STARTED, CPU milliseconds of a run, and runs per second of the closed loop."""

    started: Sequence[float]
    open_cpu_ms: float
    closed_rate: float
    closed_cpu_ms: float


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> dict[str, list[Round]]:
    """Measure the servers in turn. They are started once, so that later rounds meet what earlier ones left."""
    found = defaultdict[str, list[Round]](list)
    with start_servers(ORDER, scratch) as servers:
        for server in servers:
            warm_up(server, 50)
        for turn in range(plan.rounds):
            for server in servers if turn % 2 == 0 else reversed(servers):
                started, open_cpu_ms = _run_on_schedule(server, int(plan.seconds * RATE))
                step()
                closed_rate, closed_cpu_ms = _run_closed_loop(server, plan.runs)
                step()
                found[server.name].append(
                    Round(
                        started=started, open_cpu_ms=open_cpu_ms, closed_rate=closed_rate, closed_cpu_ms=closed_cpu_ms
                    )
                )
    return {name: found[name] for name in ORDER}


def _run_on_schedule(server: Server, runs: int) -> tuple[list[float], float]:
    requests = [build_request(WORK) for _ in range(runs)]
    cpu_before = server.cpu_seconds()
    with open_streams() as streams:
        began = time.monotonic_ns()
        for number, request in enumerate(requests):
            due = began + number * 1_000_000_000 // RATE
            streams.read(due)
            _sleep_until(due)
            streams.open_stream(server.port, request, due=due)
        streams.read_until_fewer(1)
    cpu = (server.cpu_seconds() - cpu_before) / runs
    for response in streams.responses:
        count_events(response, WORK)
    return [response.seconds_until(STARTED) * 1000 for response in streams.responses], cpu * 1000


def _sleep_until(due: int) -> None:
    """Wait for a time when no stream is open to read from."""
    if (left := due - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def _run_closed_loop(server: Server, runs: int) -> tuple[float, float]:
    requests = [build_request(WORK) for _ in range(runs)]
    cpu_before = server.cpu_seconds()
    with open_streams() as streams:
        began = time.monotonic()
        for request in requests:
            streams.read_until_fewer(CLIENTS)
            streams.open_stream(server.port, request)
        streams.read_until_fewer(1)
        seconds = time.monotonic() - began
    cpu = (server.cpu_seconds() - cpu_before) / runs
    for response in streams.responses:
        count_events(response, WORK)
    return runs / seconds, cpu * 1000


_EXPLANATION = """\
A run is three pieces of work for the commit thread: its first entries, its deltas, its end. The closed loop commits those of four \
runs at once, the open loop makes two transactions for each run. A transaction costs 0.2 ms of the commit thread, which passes the GIL \
on and gets it back at every call of SQLite (20 statements a run, 3 a transaction), and 0.2 ms of the event loop, which it wakes. Of \
the event loop's CPU the start of the run takes a fifth, the rest of the route a tenth, the run and its agent 30 % (a fifth of that is \
the log line of its end), the stream a sixth. Tried without a measurable gain: the headers in one write with RUN_STARTED, no task that \
waits for a disconnect, and four statements fewer to begin a thread. Next: a cheaper log line, and a run that ends soon in two \
transactions instead of three."""


def build_section(found: Mapping[str, Sequence[Round]]) -> Section:
    """Return the table and the goals for short runs."""
    ours = found["ambient"]
    return Section(
        explanation=_EXPLANATION,
        title="Short runs on new threads",
        how=f"Runs of {WORK.count} deltas, each on a new thread and connection. Open loop: {RATE} are posted each second whether the "
        "server keeps up or not, and the time to RUN_STARTED counts from when a run was due. Closed loop: "
        f"{CLIENTS} clients, each posts when its run has ended. Medians of {len(ours)} rounds on the same servers. (a) stores nothing.",
        columns=(
            "",
            "open loop, RUN_STARTED p50 ms",
            "p99 ms",
            "p99 range",
            "CPU ms a run",
            "closed loop, runs/s",
            "CPU ms a run",
        ),
        rows=[_build_row(name, rounds) for name, rounds in found.items()],
        goals=[
            at_most(
                "short runs, CPU of a run", statistics.median(r.open_cpu_ms for r in ours), MAX_CPU_MS, "ms", digits=2
            ),
            at_most(
                f"short runs, {RATE} per second, RUN_STARTED p99", statistics.median(_tails(ours)), MAX_P99_MS, "ms"
            ),
            at_least(
                "short runs, closed loop", statistics.median(r.closed_rate for r in ours), MIN_RATE, "runs/s", digits=0
            ),
        ],
    )


def _build_row(name: str, rounds: Sequence[Round]) -> list[str]:
    return [
        TITLES[name],
        f"{statistics.median(percentile(r.started, 50) for r in rounds):.1f}",
        f"{statistics.median(_tails(rounds)):.1f}",
        spread(_tails(rounds)),
        f"{statistics.median(r.open_cpu_ms for r in rounds):.2f}",
        f"{statistics.median(r.closed_rate for r in rounds):,.0f}",
        f"{statistics.median(r.closed_cpu_ms for r in rounds):.2f}",
    ]


def _tails(rounds: Sequence[Round]) -> list[float]:
    return [percentile(r.started, 99) for r in rounds]
