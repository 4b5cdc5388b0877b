"""Threads with a history: runs posted one after the other, and the cost of the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import STARTED, count_events, run_workload
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.servers import Server

SHORT = Workload(count=1)
_WARM_UP = 5


def extend_thread(port: int, thread: str, runs: int, deltas: int, step: Callable[[], None] | None = None) -> None:
    """Add runs to a thread, and check that each delivers what it should."""
    work = Workload(count=deltas)
    for _ in range(runs):
        count_events(run_workload(port, work, "/?snapshots=0", thread=thread), work)
        if step:
            step()


def warm_up(server: Server, runs: int = _WARM_UP) -> None:
    """Run on new threads: the first run of a process costs more than those that follow."""
    for _ in range(runs):
        run_workload(server.port, SHORT)


@dataclass(frozen=True, kw_only=True)
class Start:
    """A short run: milliseconds from its POST to RUN_STARTED, and of CPU time until its response has ended."""

    ms: float
    cpu_ms: float


def measure_start(server: Server, thread: str | None = None) -> Start:
    """Post a short run, on a new thread unless one is named."""
    cpu_before = server.cpu_seconds()
    response = run_workload(server.port, SHORT, "/?snapshots=0", thread=thread)
    cpu = server.cpu_seconds() - cpu_before
    count_events(response, SHORT)
    return Start(ms=response.seconds_until(STARTED) * 1000, cpu_ms=cpu * 1000)
