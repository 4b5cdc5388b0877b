"""300 concurrent streams, each at its own pace: latency of an event from the agent to the client."""

from __future__ import annotations

import gc
import selectors
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.client import BLOCK, Response, UnexpectedResponse, build_request, connect
from benchmarks.report import Goal, Section, percentile
from benchmarks.servers import TITLES, start_servers
from benchmarks.workload import STAMPED, Workload

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

STREAMS = 300
EVERY_MS = 33
ORDER = ("adapter", "ambient")
# Not a multiple of the pace, so that the streams' phases are spread evenly over it.
START_EVERY_NS = 10_110_000
RAMP_NS = STREAMS * START_EVERY_NS + 500_000_000
LIMIT_MS = 50.0


@dataclass(frozen=True, kw_only=True)
class Window:
    """The period in which all streams are active. Events outside of it are not counted."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True, kw_only=True)
class Live:
    """One round of a server: latencies in milliseconds, number of late events, and CPU as a share of one core."""

    latencies: Sequence[float]
    late: int
    cpu_share: float


@dataclass(kw_only=True)
class _StreamSet:
    """Open streams, read with one selector."""

    responses: list[Response] = field(default_factory=list[Response])
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def open_stream(self, port: int, request: bytes) -> None:
        sock = connect(port)
        response = Response(sent_at=time.monotonic_ns())
        sock.sendall(request)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, response)
        self.responses.append(response)

    def read(self, until: int) -> None:
        """Read until that time, or until all streams have ended."""
        while (left := until - time.monotonic_ns()) > 0 and self.selector.get_map():
            for key, _ in self.selector.select(left / 1e9):
                self._receive(key)

    def _receive(self, key: selectors.SelectorKey) -> None:
        sock: socket.socket = key.fileobj  # pyright: ignore[reportAssignmentType]  we registered sockets
        response: Response = key.data
        chunk = sock.recv(BLOCK)
        if not chunk or response.add(chunk):
            self.selector.unregister(sock)
            sock.close()


def measure(
    scratch: Path, rounds: int, seconds: float, step: Callable[[], None], names: Sequence[str] = ORDER
) -> dict[str, list[Live]]:
    """Measure the servers in turn, one at a time."""
    rounds_by_server = defaultdict[str, list[Live]](list)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            with start_servers([name], scratch) as (server,):
                rounds_by_server[name].append(_run_round(server, seconds))
            step()
    return {name: rounds_by_server[name] for name in names}


def _run_round(server: Server, seconds: float) -> Live:
    work = Workload(count=int((RAMP_NS / 1e9 + seconds + 0.5) * 1000 / EVERY_MS), every_ms=EVERY_MS)
    requests = [build_request(work, "/agents/bench") for _ in range(STREAMS)]
    streams = _StreamSet()
    gc.collect()
    gc.disable()
    try:
        began = time.monotonic_ns()
        for number, request in enumerate(requests):
            streams.read(began + number * START_EVERY_NS)
            streams.open_stream(server.port, request)
        window = Window(begin=began + RAMP_NS, end=began + RAMP_NS + int(seconds * 1e9))
        streams.read(window.begin)
        cpu_before = server.cpu_seconds()
        streams.read(window.end)
        cpu = server.cpu_seconds() - cpu_before
        streams.read(window.end + 60_000_000_000)
    finally:
        gc.enable()
    return _compute_latencies(streams.responses, work, window, cpu / window.seconds)


def _compute_latencies(responses: Sequence[Response], work: Workload, window: Window, cpu_share: float) -> Live:
    latencies, late = list[float](), 0
    for response in responses:
        arrivals = list(_parse_arrivals(response))
        if len(arrivals) != work.count:
            raise UnexpectedResponse(
                f"{len(arrivals)} of {work.count} events", b"".join(chunk for _, chunk in response.chunks)[-500:]
            )
        for due, created, arrived in arrivals:
            if window.begin <= created < window.end:
                latencies.append((arrived - created) / 1e6)
                late += arrived - due > EVERY_MS * 1_000_000
    return Live(latencies=latencies, late=late, cpu_share=cpu_share)


def _parse_arrivals(response: Response) -> Generator[tuple[int, int, int]]:
    """Yield (due, created, arrived) of every delta, also if a chunk ends in the middle of one."""
    rest = b""
    for arrived, chunk in response.chunks:
        rest += chunk
        end = 0
        for found in STAMPED.finditer(rest):
            yield int(found[1]), int(found[2]), arrived
            end = found.end()
        rest = rest[end:]


def build_section(rounds_by_server: Mapping[str, Sequence[Live]]) -> Section:
    """Return the table and the goal for latency."""
    first_rounds = next(iter(rounds_by_server.values()))
    return Section(
        title=f"{STREAMS} live streams at {1000 / EVERY_MS:.0f} events/s each",
        how=f"From the agent's `yield` to the reader's `recv`; medians over rounds ({_events_per_round(first_rounds)} events). "
        "An event is late if it arrives after the next one was due by the schedule, so that a server that slows its agents "
        "down cannot hide it.",
        columns=("", "p50 ms", "p99 ms", "p99 range", "worst ms", "late", "CPU of one core"),
        rows=[_build_row(name, rounds_by_server[name]) for name in rounds_by_server],
        goals=[_build_goal(rounds_by_server["ambient"])] if "ambient" in rounds_by_server else [],
    )


def _events_per_round(rounds: Sequence[Live]) -> str:
    return ", ".join(f"{len(result.latencies):,}" for result in rounds)


def _build_row(name: str, rounds: Sequence[Live]) -> list[str]:
    tails = [percentile(result.latencies, 99) for result in rounds]
    late, events = sum(result.late for result in rounds), sum(len(result.latencies) for result in rounds)
    return [
        TITLES[name],
        f"{statistics.median(percentile(result.latencies, 50) for result in rounds):.2f}",
        f"{statistics.median(tails):.1f}",
        f"{min(tails):.1f} to {max(tails):.1f}",
        f"{max(max(result.latencies) for result in rounds):.0f}",
        f"{late:,} of {events:,}",
        f"{statistics.median(result.cpu_share for result in rounds):.0%}",
    ]


def _build_goal(rounds: Sequence[Live]) -> Goal:
    tail = statistics.median(percentile(result.latencies, 99) for result in rounds)
    return Goal(
        what="live, agent to reader, p99",
        wanted=f"under {LIMIT_MS:g} ms",
        measured=f"{tail:.1f} ms",
        met=tail < LIMIT_MS,
    )
