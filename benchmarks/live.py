"""Hundreds of concurrent streams, each at its own pace: latency of an event from the agent to the client."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import UnexpectedResponse, build_request
from benchmarks.report import Goal, Section, at_most, percentile, spread
from benchmarks.scene import Plans
from benchmarks.servers import TITLES, start_servers
from benchmarks.streams import open_streams
from benchmarks.workload import STAMPED, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from benchmarks.client import Response
    from benchmarks.servers import Server

EVERY_MS = 33
ORDER = ("adapter", "ambient")
# Not a multiple of the pace, so that the streams' phases are spread evenly over it.
START_EVERY_NS = 10_110_000
LIMITS_MS = {300: 50.0, 500: 50.0, 1000: 150.0}
DRAIN_SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Numbers of streams, each measured so many rounds, for so many seconds once all streams are open."""

    streams: tuple[int, ...]
    rounds: int
    seconds: float


PLANS = Plans(
    smallest=Plan(streams=(3,), rounds=1, seconds=0.3),
    quick=Plan(streams=(300, 500), rounds=1, seconds=3.0),
    full=Plan(streams=(300, 500, 1000), rounds=2, seconds=10.0),
)


def count_steps(plan: Plan) -> int:
    return len(plan.streams) * plan.rounds * len(ORDER)


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
    """One round of a server: latencies and delays in milliseconds, number of late events, and CPU as a share of one core."""

    latencies: Sequence[float]
    """From the creation of an event to its arrival."""
    delays: Sequence[float]
    """From the time at which an event was due to its arrival: a server that slows its agents down cannot hide it."""
    late: int
    cpu_share: float
    cpu_per_event: float
    """CPU seconds of the window, divided by the events that were due in it."""


Rounds = dict[tuple[int, str], list[Live]]
"""Rounds by the number of streams and the server."""


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Rounds:
    """Measure the servers in turn, one at a time."""
    found = defaultdict[tuple[int, str], list[Live]](list)
    for streams in plan.streams:
        for turn in range(plan.rounds):
            for name in ORDER if turn % 2 == 0 else reversed(ORDER):
                with start_servers([name], scratch) as (server,):
                    found[streams, name].append(_run_round(server, streams, plan.seconds))
                step()
    return dict(found)


def _run_round(server: Server, count: int, seconds: float) -> Live:
    ramp = count * START_EVERY_NS + 500_000_000
    work = Workload(count=int((ramp / 1e9 + seconds + 0.5) * 1000 / EVERY_MS), every_ms=EVERY_MS)
    requests = [build_request(work, "/agents/bench") for _ in range(count)]
    with open_streams() as streams:
        began = time.monotonic_ns()
        for number, request in enumerate(requests):
            streams.read(began + number * START_EVERY_NS)
            streams.open_stream(server.port, request)
        window = Window(begin=began + ramp, end=began + ramp + int(seconds * 1e9))
        streams.read(window.begin)
        cpu_before = server.cpu_seconds()
        streams.read(window.end)
        cpu = server.cpu_seconds() - cpu_before
        streams.read(window.end + int(DRAIN_SECONDS * 1e9))
    return _compute_latencies(streams.responses, work, window, cpu / window.seconds)


def _compute_latencies(responses: Sequence[Response], work: Workload, window: Window, cpu_share: float) -> Live:
    latencies, delays = list[float](), list[float]()
    for response in responses:
        arrivals = list(_parse_arrivals(response))
        if len(arrivals) != work.count:
            raise UnexpectedResponse(
                f"{len(arrivals)} of {work.count} events", b"".join(chunk for _, chunk in response.chunks)[-500:]
            )
        for due, created, arrived in arrivals:
            if window.begin <= due < window.end:
                latencies.append((arrived - created) / 1e6)
                delays.append((arrived - due) / 1e6)
    return Live(
        latencies=latencies,
        delays=delays,
        late=sum(ms > EVERY_MS for ms in delays),
        cpu_share=cpu_share,
        cpu_per_event=cpu_share * window.seconds / len(delays),
    )


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


_EXPLANATION = """\
From 500 streams on, the event loop is busy all the time: two fifths is publishing and sending, half of that the socket, a quarter the \
agents' own tasks and timers, a fifth redacting and encoding each delta alone. The commit thread releases the GIL at each call of \
SQLite, and reacquires it within the switch interval (1 ms; with Python's 5 ms the slowest commits took twice as long). \
Delaying commits, so that they group more deltas, saved CPU at 300 streams and nothing above that, where they group by themselves. \
Next: agents in processes of their own."""


def build_section(found: Rounds) -> Section:
    """Return the table and the goals for latency."""
    counts = list(dict.fromkeys(streams for streams, _ in found))
    rounds = len(next(iter(found.values())))
    return Section(
        explanation=_EXPLANATION,
        title=f"Live streams at {1000 / EVERY_MS:.0f} events/s each",
        how=f"From the agent's `yield` to the reader's `recv`; medians over {rounds} rounds. The delay counts from the time at which an "
        "event was due by the schedule, so that a server that slows its agents down cannot hide it; an event is late if it arrives after "
        "the next one was due. Every event of every stream is checked to arrive.",
        columns=(
            "streams",
            "p50 ms",
            "p99 ms",
            "p99 range",
            "worst ms",
            "delay p99 ms",
            "late",
            "CPU of one core",
            "CPU µs/event",
        ),
        rows=[_build_row(streams, name, rounds) for (streams, name), rounds in found.items()],
        goals=[goal for streams in counts for goal in _build_goals(streams, found)],
    )


def _build_row(streams: int, name: str, rounds: Sequence[Live]) -> list[str]:
    tails = [percentile(result.latencies, 99) for result in rounds]
    late, events = sum(result.late for result in rounds), sum(len(result.latencies) for result in rounds)
    return [
        f"{streams:,}, {TITLES[name]}",
        f"{statistics.median(percentile(result.latencies, 50) for result in rounds):.2f}",
        f"{statistics.median(tails):.1f}",
        spread(tails),
        f"{max(max(result.latencies) for result in rounds):.0f}",
        f"{_median_delay(rounds):.1f}",
        f"{late:,} of {events:,}",
        f"{statistics.median(result.cpu_share for result in rounds):.0%}",
        f"{statistics.median(result.cpu_per_event for result in rounds) * 1e6:.0f}",
    ]


def _build_goals(streams: int, found: Rounds) -> list[Goal]:
    rounds = found[streams, "ambient"]
    tail = statistics.median(percentile(result.latencies, 99) for result in rounds)
    goals = [at_most(f"{streams:,} live streams, agent to reader, p99", tail, LIMITS_MS.get(streams, 50.0), "ms")]
    if streams >= 1000:
        ours, theirs = _median_delay(rounds), _median_delay(found[streams, "adapter"])
        goals.append(
            Goal(
                what=f"{streams:,} live streams, delay by the schedule, p99",
                wanted=f"below that of (a), {theirs:,.0f} ms",
                measured=f"{ours:,.0f} ms",
                met=ours < theirs,
            )
        )
    return goals


def _median_delay(rounds: Sequence[Live]) -> float:
    return statistics.median(percentile(result.delays, 99) for result in rounds)
