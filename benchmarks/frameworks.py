"""2,000 deltas of a real SDK with a scripted model: the bare loop, and end to end through this server and the published adapter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.burst import SETTLE_SECONDS, Burst
from benchmarks.client import ask, events_of
from benchmarks.report import Goal, Section
from benchmarks.servers import ROOT, environment, running
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=2_000)
PACED = Workload(count=3, every_ms=20)
"""A model that waits between its deltas, as real ones do: one that never waits shows its first text when it has made its last."""
SDKS = {"strands": "Strands", "adk": "ADK", "langgraph": "LangGraph"}
LIMIT = 1.3
SOONER = {"langgraph": 3.0}
"""How many times sooner than through the published adapter the first text is to be there."""
FIRST = b"TEXT_MESSAGE_CONTENT"


@dataclass(frozen=True, kw_only=True)
class Timed(Burst):
    """A run, and the seconds until its first text; a bare loop has none to show."""

    first: float = 0.0


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, dict[str, list[Timed]]]:
    """For each SDK, let the three take turns; the first round warms up and is not counted."""
    return {sdk: _measure(sdk, scratch, rounds, step) for sdk in SDKS}


def _measure(sdk: str, scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Timed]]:
    bursts: dict[str, list[Timed]] = {"loop": [], "ambient": [], "published": []}
    with ExitStack() as stack:
        loop = stack.enter_context(_loop(sdk))
        ours, theirs = stack.enter_context(running([f"ambient-{sdk}", f"published-{sdk}"], scratch))
        takes: dict[str, Callable[[], Timed]] = {
            "loop": loop,
            "ambient": lambda: _burst(ours),
            "published": lambda: _burst(theirs),
        }
        for turn in range(rounds + 1):
            for name, take in takes.items():
                burst = take()
                if turn:
                    bursts[name].append(burst)
                step()
    return bursts


@contextmanager
def _loop(sdk: str) -> Generator[Callable[[], Timed]]:
    """A process that consumes the SDK's own stream, once per call."""
    command = [sys.executable, "-m", "benchmarks.sdk", "loop", sdk]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as child:
        assert child.stdin
        assert child.stdout
        child.stdout.readline()

        def once() -> Timed:
            assert child.stdin
            assert child.stdout
            print(WORK.prompt, file=child.stdin, flush=True)
            return Timed(**json.loads(child.stdout.readline()))

        yield once
        child.stdin.close()


def _burst(server: Server) -> Timed:
    used = server.cpu_seconds()
    answer = ask(server.port, WORK)
    time.sleep(SETTLE_SECONDS)
    cpu = server.cpu_seconds() - used
    paced = ask(server.port, PACED)
    return Timed(events=events_of(answer, WORK), seconds=answer.seconds, cpu=cpu, first=paced.seconds_until(FIRST))


def section(bursts: Mapping[str, Mapping[str, Sequence[Timed]]]) -> Section:
    """The table and the goals of each SDK."""
    rounds = len(next(iter(bursts.values()))["loop"])
    return Section(
        title="A run of 2,000 deltas through a real SDK",
        how=f"Strands, ADK and LangGraph with a scripted model that does not wait; medians of {rounds} rounds, CPU over all rounds. "
        "The bare loop consumes the SDK's own stream in its own process and does nothing with it. This server stores and delivers the run; "
        "the published adapter (`ag_ui_strands`, `ag_ui_adk`, `ag_ui_langgraph`) delivers it through its own endpoint. "
        f"The time to the first text is measured in a separate run whose model waits {PACED.every_ms} ms between deltas.",
        columns=("", "ms", "range", "first text, ms", "CPU µs/event", "times the bare loop"),
        rows=[_row(sdk, name, one) for sdk, one in bursts.items() for name in one],
        goals=[goal for sdk, one in bursts.items() for goal in _goals(sdk, one)],
    )


TITLES = {"loop": "bare loop", "ambient": "Ambient Runner", "published": "published adapter"}


def _row(sdk: str, name: str, bursts: Mapping[str, Sequence[Timed]]) -> list[str]:
    times = sorted(burst.seconds * 1000 for burst in bursts[name])
    cost = sum(burst.cpu for burst in bursts[name]) / len(times) / WORK.count * 1e6
    return [
        f"{SDKS[sdk]}, {TITLES[name]}",
        f"{statistics.median(times):.1f}",
        f"{times[0]:.1f} to {times[-1]:.1f}",
        f"{_first(bursts[name]) * 1000:.1f}" if name != "loop" else "",
        f"{cost:.1f}",
        f"{_median(bursts[name]) / _median(bursts['loop']):.2f}",
    ]


def _goals(sdk: str, bursts: Mapping[str, Sequence[Timed]]) -> list[Goal]:
    title, wanted = SDKS[sdk], SOONER.get(sdk)
    over = _median(bursts["ambient"]) / _median(bursts["loop"])
    gain = _median(bursts["published"]) / _median(bursts["ambient"])
    sooner = _first(bursts["published"]) / _first(bursts["ambient"])
    goals = [
        Goal(
            what=f"{title}, time against the bare loop",
            wanted=f"at most {LIMIT:g} times",
            measured=f"{over:.2f} times",
            met=over <= LIMIT,
        ),
        Goal(
            what=f"{title}, published adapter's time against ours",
            wanted="more than 1 times",
            measured=f"{gain:.2f} times",
            met=gain > 1,
        ),
    ]
    if wanted is not None:
        goals.append(
            Goal(
                what=f"{title}, published adapter's time to the first text against ours",
                wanted=f"at least {wanted:g} times",
                measured=f"{sooner:.2f} times",
                met=sooner >= wanted,
            )
        )
    return goals


def _first(bursts: Sequence[Timed]) -> float:
    return statistics.median(burst.first for burst in bursts)


def _median(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.seconds for burst in bursts)
