"""Three hundred people reading at once: how long an event travels from the agent to the reader when every stream goes at its own pace."""

from __future__ import annotations

import gc
import selectors
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.client import BLOCK, Answer, WrongAnswer, connect, request
from benchmarks.report import Goal, Section, percentile
from benchmarks.servers import TITLES, running
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
    """The time in which every stream is running: what happens outside is not counted."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True, kw_only=True)
class Live:
    """One contender's round: milliseconds per event, those that came after their successor was due, and the share of a core used."""

    latencies: Sequence[float]
    late: int
    cpu_share: float


@dataclass(kw_only=True)
class _Audience:
    """Open streams, read as their bytes come."""

    answers: list[Answer] = field(default_factory=list[Answer])
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def join(self, port: int, question: bytes) -> None:
        sock = connect(port)
        answer = Answer(sent=time.monotonic_ns())
        sock.sendall(question)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, answer)
        self.answers.append(answer)

    def read(self, until: int) -> None:
        """Read whatever comes until that moment or until all streams have ended."""
        while (left := until - time.monotonic_ns()) > 0 and self.selector.get_map():
            for key, _ in self.selector.select(left / 1e9):
                self._receive(key)

    def _receive(self, key: selectors.SelectorKey) -> None:
        sock: socket.socket = key.fileobj  # pyright: ignore[reportAssignmentType]  we registered sockets
        answer: Answer = key.data
        piece = sock.recv(BLOCK)
        if not piece or answer.add(piece):
            self.selector.unregister(sock)
            sock.close()


def measure(
    scratch: Path, rounds: int, seconds: float, step: Callable[[], None], names: Sequence[str] = ORDER
) -> dict[str, list[Live]]:
    """Let the contenders take turns, each with the machine to itself."""
    rounds_of = defaultdict[str, list[Live]](list)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            with running([name], scratch) as (server,):
                rounds_of[name].append(_round(server, seconds))
            step()
    return {name: rounds_of[name] for name in names}


def _round(server: Server, seconds: float) -> Live:
    work = Workload(count=int((RAMP_NS / 1e9 + seconds + 0.5) * 1000 / EVERY_MS), every_ms=EVERY_MS)
    questions = [request(work, "/agents/bench") for _ in range(STREAMS)]
    audience = _Audience()
    gc.collect()
    gc.disable()
    try:
        began = time.monotonic_ns()
        for number, question in enumerate(questions):
            audience.read(began + number * START_EVERY_NS)
            audience.join(server.port, question)
        window = Window(begin=began + RAMP_NS, end=began + RAMP_NS + int(seconds * 1e9))
        audience.read(window.begin)
        used = server.cpu_seconds()
        audience.read(window.end)
        used = server.cpu_seconds() - used
        audience.read(window.end + 60_000_000_000)
    finally:
        gc.enable()
    return _understand(audience.answers, work, window, used / window.seconds)


def _understand(answers: Sequence[Answer], work: Workload, window: Window, cpu_share: float) -> Live:
    latencies, late = list[float](), 0
    for answer in answers:
        arrivals = list(_arrivals(answer))
        if len(arrivals) != work.count:
            raise WrongAnswer(
                f"{len(arrivals)} of {work.count} events", b"".join(piece for _, piece in answer.pieces)[-500:]
            )
        for due, made, arrived in arrivals:
            if window.begin <= made < window.end:
                latencies.append((arrived - made) / 1e6)
                late += arrived - due > EVERY_MS * 1_000_000
    return Live(latencies=latencies, late=late, cpu_share=cpu_share)


def _arrivals(answer: Answer) -> Generator[tuple[int, int, int]]:
    """Every delta as (due, made, arrived), also when a piece ends in the middle of one."""
    rest = b""
    for arrived, piece in answer.pieces:
        rest += piece
        end = 0
        for found in STAMPED.finditer(rest):
            yield int(found[1]), int(found[2]), arrived
            end = found.end()
        rest = rest[end:]


def section(rounds_of: Mapping[str, Sequence[Live]]) -> Section:
    """The table and the goal on live latency."""
    some = next(iter(rounds_of.values()))
    return Section(
        title=f"{STREAMS} live streams at {1000 / EVERY_MS:.0f} events/s each",
        how=f"From the agent's `yield` to the reader's `recv`; medians over rounds ({_events_per_round(some)} events). "
        "An event is late if it arrives after the next one was due by the schedule, so that a server that slows its agents "
        "down cannot hide it.",
        columns=("", "p50 ms", "p99 ms", "p99 range", "worst ms", "late", "CPU of one core"),
        rows=[_row(name, rounds_of[name]) for name in rounds_of],
        goals=[_goal(rounds_of["ambient"])] if "ambient" in rounds_of else [],
    )


def _events_per_round(rounds: Sequence[Live]) -> str:
    return ", ".join(f"{len(one.latencies):,}" for one in rounds)


def _row(name: str, rounds: Sequence[Live]) -> list[str]:
    tails = [percentile(one.latencies, 99) for one in rounds]
    late, events = sum(one.late for one in rounds), sum(len(one.latencies) for one in rounds)
    return [
        TITLES[name],
        f"{statistics.median(percentile(one.latencies, 50) for one in rounds):.2f}",
        f"{statistics.median(tails):.1f}",
        f"{min(tails):.1f} to {max(tails):.1f}",
        f"{max(max(one.latencies) for one in rounds):.0f}",
        f"{late:,} of {events:,}",
        f"{statistics.median(one.cpu_share for one in rounds):.0%}",
    ]


def _goal(rounds: Sequence[Live]) -> Goal:
    tail = statistics.median(percentile(one.latencies, 99) for one in rounds)
    return Goal(
        what="live, agent to reader, p99",
        wanted=f"under {LIMIT_MS:g} ms",
        measured=f"{tail:.1f} ms",
        met=tail < LIMIT_MS,
    )
