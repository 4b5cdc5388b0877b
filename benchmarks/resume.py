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


@dataclass(kw_only=True)
class Resumed:
    """Milliseconds to the first frame by where the stream starts, and the length of the run."""

    deltas: int
    first_bytes: Mapping[str, list[float]]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Resumed:
    """Resume after random events of the run, in turn with streams from its beginning and after its last delta."""
    rng = random.Random(1)
    first_bytes: dict[str, list[float]] = {"from the beginning": [], "in the middle": [], "near the end": []}
    with start_servers(["ambient"], scratch) as (server,):
        extend_thread(server.port, THREAD, 1, plan.deltas)
        cursors = [found.decode() for found in _ID.findall(read_response(server.port, build_get(PATH)).body())]
        if len(cursors) < plan.deltas:
            raise UnexpectedResponse(f"{len(cursors):,} cursors")
        step()
        for _ in range(plan.rounds):
            middle = cursors[rng.randrange(len(cursors) // 4, len(cursors) * 3 // 4)]
            for title, cursor in zip(first_bytes, (None, middle, cursors[-5]), strict=True):
                first_bytes[title].append(_milliseconds_to_first_frame(server.port, cursor))
            step()
    return Resumed(deltas=plan.deltas, first_bytes=first_bytes)


def _milliseconds_to_first_frame(port: int, cursor: str | None) -> float:
    request = build_get(PATH, {"Last-Event-ID": cursor} if cursor else None)
    return read_response(port, request, until=b"data: ").seconds_until(b"data: ") * 1000


def build_section(resumed: Resumed) -> Section:
    """Return the table and the goal for a stream that resumes."""
    return Section(
        title=f"Resume a run of {resumed.deltas:,} deltas",
        how=f"From the request with `Last-Event-ID` to the first frame, {len(resumed.first_bytes['in the middle'])} requests each, in "
        "turn, on new connections. The middle is a random event between the first and the last quarter.",
        columns=("", "first frame, p50 ms", "p99 ms", "range"),
        rows=[_build_row(title, times) for title, times in resumed.first_bytes.items()],
        goals=[
            at_most(
                f"first frame of a resume in the middle of {resumed.deltas:,} deltas, p50",
                percentile(resumed.first_bytes["in the middle"], 50),
                LIMIT_MS,
                "ms",
            )
        ],
    )


def _build_row(title: str, times: Sequence[float]) -> list[str]:
    return [title, f"{percentile(times, 50):.1f}", f"{percentile(times, 99):.1f}", spread(times)]
