"""Bursts of deltas as models send them, beside numbers: words, code, Chinese and Japanese, emoji, 1 to 60 characters."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.burst import Burst, run_burst
from benchmarks.report import Cost, Section, at_least, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_servers
from benchmarks.texts import DIGITS
from benchmarks.texts import TITLES as SHAPES
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

ORDER = ("adapter", "ambient")
FACTOR = 6.0
PATH = "/agents/bench"


@dataclass(frozen=True, kw_only=True)
class Plan:
    shapes: tuple[str, ...]
    count: int
    rounds: int


_ALL = tuple(SHAPES)
PLANS = Plans(
    smallest=Plan(shapes=(DIGITS, "pieces"), count=200, rounds=1),
    quick=Plan(shapes=_ALL, count=20_000, rounds=2),
    full=Plan(shapes=_ALL, count=20_000, rounds=5),
)


def count_steps(plan: Plan) -> int:
    return (plan.rounds + 1) * len(plan.shapes) * len(ORDER)


Bursts = dict[tuple[str, str], list[Burst]]
"""Bursts by shape and server."""


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Bursts:
    """Measure the servers in turn with each shape. The first round is a warm-up and is not counted."""
    bursts = defaultdict[tuple[str, str], list[Burst]](list)
    with start_servers(ORDER, scratch) as servers:
        for turn in range(plan.rounds + 1):
            for shape in plan.shapes:
                for server in servers if turn % 2 else reversed(servers):
                    burst = run_burst(server, Workload(count=plan.count, shape=shape), PATH)
                    if turn:
                        bursts[shape, server.name].append(burst)
                    step()
    return {(shape, name): bursts[shape, name] for shape in plan.shapes for name in ORDER}


_EXPLANATION = """\
Of the loop's time two fifths is the agent and the loop over its events, a seventh redacting and encoding (a third of that the search for \
secrets), a tenth framing, an eighth collecting and deferring events. Longer deltas add bytes to each of these, and to the transactions, \
which take a third as much time in their own thread and which (a) does not have. Next: collect the events, for a snapshot that the agent \
may send, without comparing each with the one before it."""


def build_section(bursts: Bursts) -> Section:
    """Return the table, and the goal for each shape."""
    shapes = list(dict.fromkeys(shape for shape, _ in bursts))
    rates = {key: statistics.median(burst.rate for burst in found) for key, found in bursts.items()}
    return Section(
        explanation=_EXPLANATION,
        title="Deltas of real texts",
        how=f"Bursts of one message in deltas of each shape, the same for both; medians of {len(bursts[shapes[0], 'ambient'])} rounds, "
        "in turn. The client checks the text. A word that is not ended waits for the next delta, so that (c) may send fewer events.",
        columns=("", "(a) events/s", "(c) events/s", "range", "CPU µs/event", "times (a)", "CPU, times (a)"),
        rows=[_build_row(shape, bursts, rates) for shape in shapes],
        goals=[
            at_least(
                f"{SHAPES[shape]}, (c) against (a), events per second",
                rates[shape, "ambient"] / rates[shape, "adapter"],
                FACTOR,
                "times",
            )
            for shape in shapes
        ],
        costs=[
            Cost(what=SHAPES[shape], rate=rates[shape, "ambient"], plain_rate=rates[DIGITS, "ambient"])
            for shape in shapes
            if shape != DIGITS
        ],
    )


def _build_row(shape: str, bursts: Bursts, rates: Mapping[tuple[str, str], float]) -> list[str]:
    ours, theirs = bursts[shape, "ambient"], bursts[shape, "adapter"]
    return [
        SHAPES[shape],
        f"{rates[shape, 'adapter']:,.0f}",
        f"{rates[shape, 'ambient']:,.0f}",
        spread([burst.rate for burst in ours], 0),
        f"{_cpu_per_event(ours) * 1e6:.1f}",
        f"{rates[shape, 'ambient'] / rates[shape, 'adapter']:.1f}",
        f"{_cpu_per_event(theirs) / _cpu_per_event(ours):.1f}",
    ]


def _cpu_per_event(bursts: Sequence[Burst]) -> float:
    return sum(burst.cpu for burst in bursts) / sum(burst.events for burst in bursts)
