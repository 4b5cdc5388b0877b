"""A stream that resumes in the middle of a long run, beside one that starts at its beginning."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse, build_get, read_response
from benchmarks.history import extend_thread
from benchmarks.report import Section, at_most, percentile, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

LIMIT_MS = 10.0
THREAD = "resumed"
PATH = f"/threads/{THREAD}/events?until=idle"
_ID = re.compile(rb"^id: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    deltas: int
    rounds: int


PLANS = Plans(
    smallest=Plan(deltas=100, rounds=2),
    quick=Plan(deltas=100_000, rounds=15),
    full=Plan(deltas=100_000, rounds=100),
)


def count_steps(plan: Plan) -> int:
    return 1 + plan.rounds


@dataclass(frozen=True, kw_only=True)
class First:
    """The first frame of a stream: milliseconds until it, and of the server's CPU time until then."""

    ms: float
    cpu_ms: float


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """First frames by where the stream starts, and the length of the run."""

    deltas: int
    firsts: Mapping[str, Sequence[First]]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Resumed:
    """Resume after random events of the run, in turn with streams from its beginning and after its last delta."""
    rng = random.Random(1)
    firsts: dict[str, list[First]] = {"from the beginning": [], "in the middle": [], "near the end": []}
    with start_servers(["ambient"], scratch) as (server,):
        extend_thread(server.port, THREAD, 1, plan.deltas)
        cursors = [found.decode() for found in _ID.findall(read_response(server.port, build_get(PATH)).body())]
        if len(cursors) < plan.deltas:
            raise UnexpectedResponse(f"{len(cursors):,} cursors")
        step()
        for _ in range(plan.rounds):
            middle = cursors[rng.randrange(len(cursors) // 4, len(cursors) * 3 // 4)]
            for title, cursor in zip(firsts, (None, middle, cursors[-5]), strict=True):
                firsts[title].append(_read_first_frame(server, cursor))
            step()
    return Resumed(deltas=plan.deltas, firsts=firsts)


def _read_first_frame(server: Server, cursor: str | None) -> First:
    request = build_get(PATH, {"Last-Event-ID": cursor} if cursor else None)
    cpu_before = server.cpu_seconds()
    response = read_response(server.port, request, until=b"data: ")
    cpu = server.cpu_seconds() - cpu_before
    return First(ms=response.seconds_until(b"data: ") * 1000, cpu_ms=cpu * 1000)


def build_section(resumed: Resumed) -> Section:
    """Return the table and the goal for a stream that resumes."""
    return Section(
        title=f"Resume a run of {resumed.deltas:,} deltas",
        how=f"From the request with `Last-Event-ID` to the first frame, {len(resumed.firsts['in the middle'])} requests each, in "
        "turn, on new connections. The middle is a random event between the first and the last quarter.",
        columns=("", "first frame, p50 ms", "p99 ms", "range", "CPU until then, p50 ms"),
        rows=[_build_row(title, firsts) for title, firsts in resumed.firsts.items()],
        goals=[
            at_most(
                f"first frame of a resume in the middle of {resumed.deltas:,} deltas, p50",
                percentile([first.ms for first in resumed.firsts["in the middle"]], 50),
                LIMIT_MS,
                "ms",
            )
        ],
    )


def _build_row(title: str, firsts: Sequence[First]) -> list[str]:
    times = [first.ms for first in firsts]
    cpu_ms = percentile([first.cpu_ms for first in firsts], 50)
    return [title, f"{percentile(times, 50):.1f}", f"{percentile(times, 99):.1f}", spread(times), f"{cpu_ms:.1f}"]
