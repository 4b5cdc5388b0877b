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
from benchmarks.client import count_events, run_workload
from benchmarks.report import Goal, Section
from benchmarks.servers import ROOT, child_environment, start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=2_000)
PACED = Workload(count=3, every_ms=20)
"""A model that waits between deltas, as real ones do. Without waits, the first text would arrive only with the last."""
SDKS = {"strands": "Strands", "adk": "ADK", "langgraph": "LangGraph"}
LIMIT = 1.3
MIN_FIRST_TEXT_SPEEDUP = {"langgraph": 3.0}
"""Goal: factor by which the first text arrives earlier than through the published adapter."""
FIRST_TEXT = b"TEXT_MESSAGE_CONTENT"


@dataclass(frozen=True, kw_only=True)
class Timed(Burst):
    """A run and the seconds until its first text, which a bare loop does not have."""

    first: float = 0.0


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, dict[str, list[Timed]]]:
    """Measure the bare loop and both servers in turn for each SDK. The first round is a warm-up and is not counted."""
    return {sdk: _measure_sdk(sdk, scratch, rounds, step) for sdk in SDKS}


def _measure_sdk(sdk: str, scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Timed]]:
    bursts: dict[str, list[Timed]] = {"loop": [], "ambient": [], "published": []}
    with ExitStack() as stack:
        loop = stack.enter_context(_start_loop(sdk))
        ours, theirs = stack.enter_context(start_servers([f"ambient-{sdk}", f"published-{sdk}"], scratch))
        measurements: dict[str, Callable[[], Timed]] = {
            "loop": loop,
            "ambient": lambda: _run_burst(ours),
            "published": lambda: _run_burst(theirs),
        }
        for turn in range(rounds + 1):
            for name, run_once in measurements.items():
                burst = run_once()
                if turn:
                    bursts[name].append(burst)
                step()
    return bursts


@contextmanager
def _start_loop(sdk: str) -> Generator[Callable[[], Timed]]:
    """Start a process that consumes the SDK's own stream, once per call."""
    command = [sys.executable, "-m", "benchmarks.sdk", "loop", sdk]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=child_environment(), **pipes) as child:
        assert child.stdin
        assert child.stdout
        child.stdout.readline()

        def run_once() -> Timed:
            assert child.stdin
            assert child.stdout
            print(WORK.prompt, file=child.stdin, flush=True)
            return Timed(**json.loads(child.stdout.readline()))

        yield run_once
        child.stdin.close()


def _run_burst(server: Server) -> Timed:
    cpu_before = server.cpu_seconds()
    response = run_workload(server.port, WORK)
    time.sleep(SETTLE_SECONDS)
    cpu = server.cpu_seconds() - cpu_before
    paced = run_workload(server.port, PACED)
    return Timed(
        events=count_events(response, WORK), seconds=response.seconds, cpu=cpu, first=paced.seconds_until(FIRST_TEXT)
    )


def build_section(bursts: Mapping[str, Mapping[str, Sequence[Timed]]]) -> Section:
    """Return the table and the goals of each SDK."""
    rounds = len(next(iter(bursts.values()))["loop"])
    return Section(
        title="A run of 2,000 deltas through a real SDK",
        how=f"Strands, ADK and LangGraph with a scripted model that does not wait; medians of {rounds} rounds, CPU over all rounds. "
        "The bare loop consumes the SDK's own stream in its own process and does nothing with it. This server stores and delivers the run; "
        "the published adapter (`ag_ui_strands`, `ag_ui_adk`, `ag_ui_langgraph`) delivers it through its own endpoint. "
        f"The time to the first text is measured in a separate run whose model waits {PACED.every_ms} ms between deltas.",
        columns=("", "ms", "range", "first text, ms", "CPU µs/event", "times the bare loop"),
        rows=[_build_row(sdk, name, results) for sdk, results in bursts.items() for name in results],
        goals=[goal for sdk, results in bursts.items() for goal in _build_goals(sdk, results)],
    )


TITLES = {"loop": "bare loop", "ambient": "Ambient Runner", "published": "published adapter"}


def _build_row(sdk: str, name: str, bursts: Mapping[str, Sequence[Timed]]) -> list[str]:
    times = sorted(burst.seconds * 1000 for burst in bursts[name])
    cost = sum(burst.cpu for burst in bursts[name]) / len(times) / WORK.count * 1e6
    return [
        f"{SDKS[sdk]}, {TITLES[name]}",
        f"{statistics.median(times):.1f}",
        f"{times[0]:.1f} to {times[-1]:.1f}",
        f"{_median_first_text(bursts[name]) * 1000:.1f}" if name != "loop" else "",
        f"{cost:.1f}",
        f"{_median_seconds(bursts[name]) / _median_seconds(bursts['loop']):.2f}",
    ]


def _build_goals(sdk: str, bursts: Mapping[str, Sequence[Timed]]) -> list[Goal]:
    title, wanted = SDKS[sdk], MIN_FIRST_TEXT_SPEEDUP.get(sdk)
    overhead = _median_seconds(bursts["ambient"]) / _median_seconds(bursts["loop"])
    speedup = _median_seconds(bursts["published"]) / _median_seconds(bursts["ambient"])
    first_text_speedup = _median_first_text(bursts["published"]) / _median_first_text(bursts["ambient"])
    goals = [
        Goal(
            what=f"{title}, time against the bare loop",
            wanted=f"at most {LIMIT:g} times",
            measured=f"{overhead:.2f} times",
            met=overhead <= LIMIT,
        ),
        Goal(
            what=f"{title}, published adapter's time against ours",
            wanted="more than 1 times",
            measured=f"{speedup:.2f} times",
            met=speedup > 1,
        ),
    ]
    if wanted is not None:
        goals.append(
            Goal(
                what=f"{title}, published adapter's time to the first text against ours",
                wanted=f"at least {wanted:g} times",
                measured=f"{first_text_speedup:.2f} times",
                met=first_text_speedup >= wanted,
            )
        )
    return goals


def _median_first_text(bursts: Sequence[Timed]) -> float:
    return statistics.median(burst.first for burst in bursts)


def _median_seconds(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.seconds for burst in bursts)
