"""The cost of a trace receiver that is down: four servers that differ only in the receiver of their traces."""

from __future__ import annotations

import random
import re
import socket
import statistics
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse, count_events, run_workload
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import start_server
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

PACED = Workload(count=60, every_ms=5)
"""The run that is compared. It waits between its deltas, as models do, so its duration varies far less than that of a burst."""
BURST = Workload(count=5_000)
"""Measures the cost of a delta."""
TITLES = {"off": "no tracing", "up": "up", "refused": "refused", "silent": "silent"}
DOWN = ("refused", "silent")
WARM_UP = 2
LIMIT = 1.05
CPU_LIMIT = 1.25
"""An exporter that retries without a pause hardly affects the duration of a paced run, but multiplies its CPU time."""
# Longer than the export interval, so that the export of the last runs is included.
SETTLE_SECONDS = 2.0
# Longer than the exporter's timeout for a batch.
EXPORT_DEADLINE_SECONDS = 15.0
LOST_SPANS = re.compile(r"^ambient_spans_lost_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The rounds of one server: durations in seconds, and CPU seconds per round, including exports."""

    paced: Sequence[float]
    bursts: Sequence[float]
    cpu: float

    @property
    def median(self) -> float:
        return statistics.median(self.paced)


PLANS = Plans(smallest=1, quick=5, full=12)


def count_steps(rounds: int) -> int:
    return (rounds + WARM_UP) * len(TITLES)


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, Traced]:
    """Measure the four servers in turn, in random order. The first rounds are a warm-up and are not counted."""
    with _start_all(scratch) as (servers, receiver):
        _run_rounds(servers, WARM_UP, step)
        cpu_before = {name: server.cpu_seconds() for name, server in servers.items()}
        paced, bursts = _run_rounds(servers, rounds, step)
        time.sleep(SETTLE_SECONDS)
        cpu = {name: (server.cpu_seconds() - cpu_before[name]) / rounds for name, server in servers.items()}
        _check_exports(servers, receiver)
    return {name: Traced(paced=paced[name], bursts=bursts[name], cpu=cpu[name]) for name in TITLES}


@contextmanager
def _start_all(scratch: Path) -> Generator[tuple[dict[str, Server], Server]]:
    """Start the servers, by the state of their receiver, and the receiver that is up."""
    with ExitStack() as stack:
        receiver = stack.enter_context(start_server("receiver", scratch))
        # The kernel accepts connections and bytes for a listening socket that is never read. It refuses connections to the other socket.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        refused = stack.enter_context(socket.socket())
        refused.bind(("127.0.0.1", 0))
        ports = {"up": receiver.port, "refused": refused.getsockname()[1], "silent": silent.getsockname()[1]}
        servers = {
            name: stack.enter_context(start_server("ambient", scratch, _tracing_settings(ports.get(name))))
            for name in TITLES
        }
        yield servers, receiver


def _tracing_settings(port: int | None) -> dict[str, str]:
    """Return the settings for tracing to an OpenTelemetry collector and to Langfuse, both at this port."""
    if port is None:
        return {"AMBIENT_TRACING": ""}
    url = f"http://127.0.0.1:{port}"
    return {
        "AMBIENT_TRACING": "otlp,langfuse",
        "AMBIENT_OTLP_ENDPOINT": url,
        "AMBIENT_LANGFUSE_URL": url,
        "LANGFUSE_PUBLIC_KEY": "pk-lf-of-the-benchmarks",
        "LANGFUSE_SECRET_KEY": "sk-lf-of-the-benchmarks",
    }


_Seconds = dict[str, list[float]]


def _run_rounds(servers: Mapping[str, Server], rounds: int, step: Callable[[], None]) -> tuple[_Seconds, _Seconds]:
    """Return the durations of the paced runs and of the bursts of each server."""
    paced, bursts = {name: list[float]() for name in servers}, {name: list[float]() for name in servers}
    for _ in range(rounds):
        for name in random.sample(list(servers), len(servers)):
            paced[name].append(_measure_seconds(servers[name], PACED))
            bursts[name].append(_measure_seconds(servers[name], BURST))
            step()
    return paced, bursts


def _measure_seconds(server: Server, work: Workload) -> float:
    response = run_workload(server.port, work)
    count_events(response, work)
    return response.seconds


def _check_exports(servers: Mapping[str, Server], receiver: Server) -> None:
    """Check that each server exported to its receiver.

    Raises:
        UnexpectedResponse: one did not, so the figures are not valid.
    """
    deadline = time.monotonic() + EXPORT_DEADLINE_SECONDS
    while not all(_count_lost_spans(servers[name]) for name in DOWN):
        if time.monotonic() > deadline:
            raise UnexpectedResponse("No span was lost, although the receiver is down.")
        time.sleep(0.2)
    if _count_lost_spans(servers["up"]) or not int(_http_get(receiver, "/")):
        raise UnexpectedResponse("The receiver that is up did not get all traces.")


def _count_lost_spans(server: Server) -> float:
    return sum(float(count) for count in LOST_SPANS.findall(_http_get(server, "/metrics")))


def _http_get(server: Server, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def build_section(traced: Mapping[str, Traced]) -> Section:
    """Return the table and the goals for receivers that are down."""
    return Section(
        title="A run while the receiver of its traces is down",
        how="Four servers at the same time, in another order each round. Three of them trace every run to an OpenTelemetry collector and "
        "to Langfuse: to receivers that are up, that refuse connections, or that accept them and never respond (silent). "
        f"A run is {PACED.count} deltas with {PACED.every_ms} ms between them; a burst of {BURST.count:,} deltas follows it. "
        f"Medians of {len(traced['up'].paced)} rounds. CPU is the total of a server from the first round to the last, "
        "including its attempts to export, divided by the number of rounds.",
        columns=("receiver", "run, ms", "range", "times up", "burst, ms", "times up", "CPU, ms", "times up"),
        rows=[_build_row(name, traced) for name in traced],
        goals=[
            _build_goal("time of a run", LIMIT, {name: _ratio(traced, name) for name in DOWN}),
            _build_goal("CPU", CPU_LIMIT, {name: _cpu_ratio(traced, name) for name in DOWN}),
        ],
    )


def _build_goal(what: str, limit: float, ratios: Mapping[str, float]) -> Goal:
    worst = max(ratios.values())
    return Goal(
        what=f"tracing, {what} with the receiver down against up",
        wanted=f"at most {limit:g} times",
        measured=f"{worst:.3f} times",
        met=worst <= limit,
    )


def _build_row(name: str, traced: Mapping[str, Traced]) -> list[str]:
    result, up = traced[name], traced["up"]
    return [
        TITLES[name],
        f"{result.median * 1000:.1f}",
        f"{min(result.paced) * 1000:.0f} to {max(result.paced) * 1000:.0f}",
        f"{_ratio(traced, name):.3f}",
        f"{statistics.median(result.bursts) * 1000:.1f}",
        f"{statistics.median(result.bursts) / statistics.median(up.bursts):.3f}",
        f"{result.cpu * 1000:.1f}",
        f"{_cpu_ratio(traced, name):.3f}",
    ]


def _ratio(traced: Mapping[str, Traced], name: str) -> float:
    """Return the ratio of the medians, which readers can recompute from the table."""
    return traced[name].median / traced["up"].median


def _cpu_ratio(traced: Mapping[str, Traced], name: str) -> float:
    return traced[name].cpu / traced["up"].cpu
