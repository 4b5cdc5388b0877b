"""The replay of a whole thread: bytes and seconds, for many runs and for one of the same length."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse, build_get, read_response
from benchmarks.history import extend_thread
from benchmarks.report import Goal, Section, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

FACTOR = 1.5
MANY, ONE = "many", "one"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A thread of so many runs, and one with all their deltas in one run."""

    runs: int
    deltas: int
    rounds: int


PLANS = Plans(
    smallest=Plan(runs=3, deltas=10, rounds=1),
    quick=Plan(runs=100, deltas=100, rounds=3),
    full=Plan(runs=1_000, deltas=100, rounds=5),
)


def count_steps(plan: Plan) -> int:
    return plan.runs + 1 + plan.rounds


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One replay: its frames, bytes and seconds, and the server's CPU seconds."""

    frames: int
    size: int
    seconds: float
    first_byte: float
    cpu: float


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> dict[str, list[Replay]]:
    """Build both threads, then replay them in turn: as an AG-UI client does, and without the snapshots of runs."""
    with start_servers(["ambient"], scratch) as (server,):
        extend_thread(server.port, MANY, plan.runs, plan.deltas, step)
        extend_thread(server.port, ONE, 1, plan.runs * plan.deltas, step)
        titles = {
            f"{plan.runs:,} runs of {plan.deltas:,} deltas": _path(MANY),
            f"{plan.runs:,} runs of {plan.deltas:,} deltas, `?snapshots=0`": f"{_path(MANY)}&snapshots=0",
            f"one run of {plan.runs * plan.deltas:,} deltas": _path(ONE),
        }
        found: dict[str, list[Replay]] = {title: [] for title in titles}
        for _ in range(plan.rounds):
            for title, path in titles.items():
                found[title].append(replay_thread(server, path, plan.runs * plan.deltas))
            step()
    return found


def _path(thread: str) -> str:
    return f"/threads/{thread}/events?until=idle"


def replay_thread(server: Server, path: str, deltas: int) -> Replay:
    """Read a stream to its end. Raises: UnexpectedResponse, if it has not so many deltas."""
    cpu_before = server.cpu_seconds()
    response = read_response(server.port, build_get(path))
    cpu = server.cpu_seconds() - cpu_before
    body = response.body()
    if (found := body.count(b'"TEXT_MESSAGE_CONTENT"')) != deltas:
        raise UnexpectedResponse(f"{found:,} of {deltas:,} deltas")
    return Replay(
        frames=body.count(b"\n\n"),
        size=len(body),
        seconds=response.seconds,
        first_byte=response.seconds_until(b"data: "),
        cpu=cpu,
    )


_EXPLANATION = """\
A run is stored as three or four small batches, and one of 100,000 deltas as large ones. Of what a batch costs more (about 8 µs), half is \
choosing it, looking for snapshots and joining its frames to others, and half the turn of the stream for it. Next: render the batches of \
several runs together."""


def build_section(found: Mapping[str, Sequence[Replay]]) -> Section:
    """Return the table, and the goal that many runs cost what one does."""
    many, _, one = found.values()
    return Section(
        explanation=_EXPLANATION,
        title="Replay of a whole thread",
        how=f"`GET /threads/{{id}}/events` from the beginning to the end; medians of {len(one)} replays, in turn. "
        "Frames without an `id` are counted too.",
        columns=("", "frames", "MB", "bytes a frame", "ms", "range", "first byte, ms", "CPU ms"),
        rows=[_build_row(title, replays) for title, replays in found.items()],
        goals=[
            _build_goal("bytes", _bytes_per_frame(many) / _bytes_per_frame(one)),
            _build_goal("CPU", _cpu_per_frame(many) / _cpu_per_frame(one)),
        ],
    )


def _build_row(title: str, replays: Sequence[Replay]) -> list[str]:
    return [
        title,
        f"{replays[0].frames:,}",
        f"{replays[0].size / 1e6:,.1f}",
        f"{_bytes_per_frame(replays):,.0f}",
        f"{statistics.median(replay.seconds for replay in replays) * 1000:,.0f}",
        spread([replay.seconds * 1000 for replay in replays], 0),
        f"{statistics.median(replay.first_byte for replay in replays) * 1000:.1f}",
        f"{statistics.median(replay.cpu for replay in replays) * 1000:,.0f}",
    ]


def _bytes_per_frame(replays: Sequence[Replay]) -> float:
    return replays[0].size / replays[0].frames


def _cpu_per_frame(replays: Sequence[Replay]) -> float:
    return statistics.median(replay.cpu for replay in replays) / replays[0].frames


def _build_goal(what: str, factor: float) -> Goal:
    return Goal(
        what=f"replay, {what} of a frame, many runs against one",
        wanted=f"at most {FACTOR:g} times",
        measured=f"{factor:.2f} times",
        met=factor <= FACTOR,
    )
