"""What a tracing receiver costs a run when it is down: four servers side by side that differ in nothing but who takes their traces."""

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

from benchmarks.client import WrongAnswer, ask, events_of
from benchmarks.report import Goal, Section
from benchmarks.servers import started
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

PACED = Workload(count=60, every_ms=5)
"""The run that is compared. It waits between its deltas, as models do, and so differs far less from one time to the next than a burst."""
BURST = Workload(count=5_000)
"""For what a delta costs."""
TITLES = {"off": "no tracing", "up": "up", "refused": "refused", "silent": "silent"}
DOWN = ("refused", "silent")
WARM_UP = 2
LIMIT = 1.05
CPU_LIMIT = 1.25
"""An exporter that tries again without a pause hardly shows in the time of a run, which waits; its CPU is a multiple."""
# Longer than the exporter waits between batches: what the last runs have to send is counted too.
SETTLE_SECONDS = 2.0
# Longer than the exporter tries to send a batch.
GIVE_UP_SECONDS = 15.0
LOST = re.compile(r"^ambient_spans_lost_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One server's rounds: how long its runs took, and the CPU it used for each round, its exporting included."""

    paced: Sequence[float]
    bursts: Sequence[float]
    cpu: float

    @property
    def median(self) -> float:
        return statistics.median(self.paced)


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, Traced]:
    """Let the four take turns, in another order each round; the first rounds warm up and are not counted."""
    with _side_by_side(scratch) as (servers, receiver):
        _rounds(servers, WARM_UP, step)
        used = {name: server.cpu_seconds() for name, server in servers.items()}
        paced, bursts = _rounds(servers, rounds, step)
        time.sleep(SETTLE_SECONDS)
        cpu = {name: (server.cpu_seconds() - used[name]) / rounds for name, server in servers.items()}
        _check(servers, receiver)
    return {name: Traced(paced=paced[name], bursts=bursts[name], cpu=cpu[name]) for name in TITLES}


@contextmanager
def _side_by_side(scratch: Path) -> Generator[tuple[dict[str, Server], Server]]:
    """The servers by what they trace to, and the receiver that is up."""
    with ExitStack() as stack:
        receiver = stack.enter_context(started("receiver", scratch))
        # The system takes connections to a socket that listens, and their bytes, though nobody reads them; it refuses those to the other.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        refused = stack.enter_context(socket.socket())
        refused.bind(("127.0.0.1", 0))
        ports = {"up": receiver.port, "refused": refused.getsockname()[1], "silent": silent.getsockname()[1]}
        servers = {
            name: stack.enter_context(started("ambient", scratch, _settings(ports.get(name)))) for name in TITLES
        }
        yield servers, receiver


def _settings(port: int | None) -> dict[str, str]:
    """Tracing to an OpenTelemetry collector and to Langfuse, both at this port."""
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


def _rounds(servers: Mapping[str, Server], rounds: int, step: Callable[[], None]) -> tuple[_Seconds, _Seconds]:
    """How long the paced runs and the bursts of each server took."""
    paced, bursts = {name: list[float]() for name in servers}, {name: list[float]() for name in servers}
    for _ in range(rounds):
        for name in random.sample(list(servers), len(servers)):
            paced[name].append(_seconds(servers[name], PACED))
            bursts[name].append(_seconds(servers[name], BURST))
            step()
    return paced, bursts


def _seconds(server: Server, work: Workload) -> float:
    answer = ask(server.port, work)
    events_of(answer, work)
    return answer.seconds


def _check(servers: Mapping[str, Server], receiver: Server) -> None:
    """See that each server's traces went where its name says.

    Raises:
        WrongAnswer: they did not, so the figures would mean nothing.
    """
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while not all(_lost(servers[name]) for name in DOWN):
        if time.monotonic() > give_up:
            raise WrongAnswer("No span was lost on the way to a receiver that is down.")
        time.sleep(0.2)
    if _lost(servers["up"]) or not int(_got(receiver, "/")):
        raise WrongAnswer("The receiver that is up did not get the traces.")


def _lost(server: Server) -> float:
    return sum(float(count) for count in LOST.findall(_got(server, "/metrics")))


def _got(server: Server, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def section(traced: Mapping[str, Traced]) -> Section:
    """The table and the goals on receivers that are down."""
    return Section(
        title="A run while the receiver of its traces is down",
        how="Four servers at the same time, in another order each round. Three of them trace every run to an OpenTelemetry collector and "
        "to Langfuse: to receivers that are up, that refuse connections, or that accept them and never respond (silent). "
        f"A run is {PACED.count} deltas with {PACED.every_ms} ms between them; a burst of {BURST.count:,} deltas follows it. "
        f"Medians of {len(traced['up'].paced)} rounds. CPU is the total of a server from the first round to the last, "
        "including its attempts to export, divided by the number of rounds.",
        columns=("receiver", "run, ms", "range", "times up", "burst, ms", "times up", "CPU, ms", "times up"),
        rows=[_row(name, traced) for name in traced],
        goals=[
            _goal("time of a run", LIMIT, {name: _ratio(traced, name) for name in DOWN}),
            _goal("CPU", CPU_LIMIT, {name: _cpu_ratio(traced, name) for name in DOWN}),
        ],
    )


def _goal(what: str, limit: float, ratios: Mapping[str, float]) -> Goal:
    worst = max(ratios.values())
    return Goal(
        what=f"tracing, {what} with the receiver down against up",
        wanted=f"at most {limit:g} times",
        measured=f"{worst:.3f} times",
        met=worst <= limit,
    )


def _row(name: str, traced: Mapping[str, Traced]) -> list[str]:
    mine, up = traced[name], traced["up"]
    return [
        TITLES[name],
        f"{mine.median * 1000:.1f}",
        f"{min(mine.paced) * 1000:.0f} to {max(mine.paced) * 1000:.0f}",
        f"{_ratio(traced, name):.3f}",
        f"{statistics.median(mine.bursts) * 1000:.1f}",
        f"{statistics.median(mine.bursts) / statistics.median(up.bursts):.3f}",
        f"{mine.cpu * 1000:.1f}",
        f"{_cpu_ratio(traced, name):.3f}",
    ]


def _ratio(traced: Mapping[str, Traced], name: str) -> float:
    """Of the medians, so that a reader can work it out from the table."""
    return traced[name].median / traced["up"].median


def _cpu_ratio(traced: Mapping[str, Traced], name: str) -> float:
    return traced[name].cpu / traced["up"].cpu
