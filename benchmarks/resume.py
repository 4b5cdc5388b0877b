"""A stream that resumes in the middle of a long run, or in an older run of a long thread, beside one that starts at its beginning."""

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
MIDDLE, OLDER = "in the middle", "in an older run of another thread"
_ID = re.compile(rb"^id: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Deltas of the long run, runs of the long thread with as many deltas in all, and rounds."""

    deltas: int
    runs: int
    rounds: int


PLANS = Plans(
    smallest=Plan(deltas=100, runs=4, rounds=2),
    quick=Plan(deltas=100_000, runs=100, rounds=15),
    full=Plan(deltas=100_000, runs=400, rounds=100),
)


def count_steps(plan: Plan) -> int:
    return 2 + plan.rounds


@dataclass(frozen=True, kw_only=True)
class First:
    """The first frame of a stream: milliseconds until it, and of the server's CPU time until then."""

    ms: float
    cpu_ms: float


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """First frames by where the stream starts, and the lengths of the run and of the thread."""

    deltas: int
    runs: int
    firsts: Mapping[str, Sequence[First]]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Resumed:
    """Resume after random events of a run and of a thread, in turn with streams from its beginning and after its last delta."""
    rng = random.Random(1)
    firsts: dict[str, list[First]] = {"from the beginning": [], MIDDLE: [], "near the end": [], OLDER: []}
    with start_servers(["ambient"], scratch) as (server,):
        run = _extend_thread(server, "run", 1, plan.deltas)
        step()
        thread = _extend_thread(server, "thread", plan.runs, plan.deltas // plan.runs)
        step()
        for _ in range(plan.rounds):
            starts = (
                ("run", None),
                ("run", _choose_from_middle(run, rng)),
                ("run", run[-5]),
                ("thread", _choose_from_middle(thread, rng)),
            )
            for title, (name, cursor) in zip(firsts, starts, strict=True):
                firsts[title].append(_read_first_frame(server, name, cursor))
            step()
    return Resumed(deltas=plan.deltas, runs=plan.runs, firsts=firsts)


def _extend_thread(server: Server, thread: str, runs: int, deltas: int) -> list[str]:
    """Begin a thread of so many runs. Return its cursors."""
    extend_thread(server.port, thread, runs, deltas)
    cursors = [found.decode() for found in _ID.findall(read_response(server.port, build_get(_path(thread))).body())]
    if len(cursors) < runs * deltas:
        raise UnexpectedResponse(f"{len(cursors):,} cursors")
    return cursors


def _choose_from_middle(cursors: Sequence[str], rng: random.Random) -> str:
    return cursors[rng.randrange(len(cursors) // 4, len(cursors) * 3 // 4)]


def _path(thread: str) -> str:
    return f"/threads/{thread}/events?until=idle"


def _read_first_frame(server: Server, thread: str, cursor: str | None) -> First:
    request = build_get(_path(thread), {"Last-Event-ID": cursor} if cursor else None)
    cpu_before = server.cpu_seconds()
    response = read_response(server.port, request, until=b"data: ")
    cpu = server.cpu_seconds() - cpu_before
    return First(ms=response.seconds_until(b"data: ") * 1000, cpu_ms=cpu * 1000)


def build_section(resumed: Resumed) -> Section:
    """Return the table and the goal for a stream that resumes."""
    return Section(
        title=f"Resume a run of {resumed.deltas:,} deltas",
        how=f"From the request with `Last-Event-ID` to the first frame, {len(resumed.firsts[MIDDLE])} requests each, in "
        "turn, on new connections. The middle, and the older run, is that of a random event between the first and the last quarter; the "
        f"other thread has {resumed.runs} runs with as many deltas in all.",
        columns=("", "first frame, p50 ms", "p99 ms", "range", "CPU until then, p50 ms"),
        rows=[_build_row(title, firsts) for title, firsts in resumed.firsts.items()],
        goals=[
            at_most(
                f"first frame of a resume {where}, p50",
                percentile([first.ms for first in resumed.firsts[title]], 50),
                LIMIT_MS,
                "ms",
            )
            for title, where in {
                MIDDLE: f"in the middle of {resumed.deltas:,} deltas",
                OLDER: f"in an older one of {resumed.runs} runs",
            }.items()
        ],
    )


def _build_row(title: str, firsts: Sequence[First]) -> list[str]:
    times = [first.ms for first in firsts]
    cpu_ms = percentile([first.cpu_ms for first in firsts], 50)
    return [title, f"{percentile(times, 50):.1f}", f"{percentile(times, 99):.1f}", spread(times), f"{cpu_ms:.1f}"]
