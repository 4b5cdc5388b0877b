"""One run and a thousand readers: deliveries per second, beside an app that puts every event into a queue per reader."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse, build_get, build_request, connect, count_events, read_response
from benchmarks.history import extend_thread
from benchmarks.report import Section, at_least, spread
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.streams import open_streams
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server
    from benchmarks.streams import StreamSet

ORDER = ("broadcast", "ambient")
MIN_RATE = 2e6
_END = b"RUN_FINISHED"
_CHUNK_HEADER = re.compile(rb"\r\n[0-9a-f]+\r\n")
"""What HTTP puts between two chunks, also in the middle of a word."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Readers, and the deltas of a run: fewer for the peer, which would take minutes for as many."""

    readers: int
    deltas: Mapping[str, int]
    rounds: int


PLANS = Plans(
    smallest=Plan(readers=3, deltas={"broadcast": 5, "ambient": 5}, rounds=1),
    quick=Plan(readers=1_000, deltas={"broadcast": 20, "ambient": 1_000}, rounds=1),
    full=Plan(readers=1_000, deltas={"broadcast": 100, "ambient": 2_000}, rounds=5),
)


def count_steps(plan: Plan) -> int:
    return len(ORDER) * plan.rounds


@dataclass(frozen=True, kw_only=True)
class FanOut:
    readers: int
    deltas: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.readers * self.deltas / self.seconds


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> dict[str, list[FanOut]]:
    """Measure the servers in turn; each has new readers in every round."""
    found = defaultdict[str, list[FanOut]](list)
    with start_servers(ORDER, scratch) as servers:
        for turn in range(plan.rounds):
            for server in servers if turn % 2 == 0 else reversed(servers):
                found[server.name].append(_run_round(server, plan, f"fan-out-{turn}"))
                step()
    return {name: found[name] for name in ORDER}


def _run_round(server: Server, plan: Plan, thread: str) -> FanOut:
    deltas = plan.deltas[server.name]
    if server.name == "ambient":
        extend_thread(server.port, thread, 1, 1)
    with open_streams() as streams:
        for _ in range(plan.readers):
            streams.open_stream(server.port, build_get(f"/threads/{thread}/events"))
        streams.read_until_marked(_END if server.name == "ambient" else b": ping")
        before = [len(response.chunks) for response in streams.responses]
        cpu_before = server.cpu_seconds()
        seconds = _deliver(server, streams, thread, Workload(count=deltas))
        cpu = server.cpu_seconds() - cpu_before
        for response, skipped in zip(streams.responses, before, strict=True):
            received = _CHUNK_HEADER.sub(b"", b"".join(chunk for _, chunk in response.chunks[skipped:]))
            if received.count(b"TEXT_MESSAGE_CONTENT") != deltas:
                raise UnexpectedResponse(received[-500:])
    return FanOut(readers=plan.readers, deltas=deltas, seconds=seconds, cpu=cpu)


def _deliver(server: Server, streams: StreamSet, thread: str, work: Workload) -> float:
    """Start the run in a thread of its own. Return the seconds until its last reader has its end."""
    if server.name != "ambient":
        head = f"POST /{work.count} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with connect(server.port) as sock:
            sock.sendall(head.encode())
            return _read_all(streams)
    request = build_request(work, "/?snapshots=0", thread=thread)
    poster = threading.Thread(target=lambda: count_events(read_response(server.port, request), work))
    poster.start()
    seconds = _read_all(streams)
    poster.join()
    return seconds


def _read_all(streams: StreamSet) -> float:
    began = time.monotonic()
    streams.read_until_marked(_END)
    return time.monotonic() - began


def build_section(found: Mapping[str, Sequence[FanOut]]) -> Section:
    """Return the table and the goal for deliveries."""
    ours, theirs = found["ambient"], found["broadcast"]
    return Section(
        title=f"One run, {ours[0].readers:,} readers",
        how=f"From the POST to the last byte of the last reader; medians of {len(ours)} rounds, in turn. Not the same work: the run has "
        f"{ours[0].deltas:,} deltas through (c), which stores them, and {theirs[0].deltas:,} through the peer, which would take minutes.",
        columns=("", "deliveries/s", "range", "CPU µs/delivery"),
        rows=[_build_row(name, rounds) for name, rounds in found.items()],
        goals=[at_least("fan-out, deliveries per second", _median_rate(ours) / 1e6, MIN_RATE / 1e6, "million", 2)],
    )


def _build_row(name: str, rounds: Sequence[FanOut]) -> list[str]:
    cost = sum(fan.cpu for fan in rounds) / sum(fan.readers * fan.deltas for fan in rounds)
    return [
        TITLES[name],
        f"{_median_rate(rounds):,.0f}",
        spread([fan.rate for fan in rounds], 0),
        f"{cost * 1e6:.2f}",
    ]


def _median_rate(rounds: Sequence[FanOut]) -> float:
    return statistics.median(fan.rate for fan in rounds)
