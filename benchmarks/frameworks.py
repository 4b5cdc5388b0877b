"""2,000 deltas of a real SDK with a scripted model: the bare loop, and end to end through this server and the published adapter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
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
SDKS = {"strands": "Strands", "adk": "ADK"}
LIMIT = 1.3


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, dict[str, list[Burst]]]:
    """For each SDK, let the three take turns; the first round warms up and is not counted."""
    return {sdk: _measure(sdk, scratch, rounds, step) for sdk in SDKS}


def _measure(sdk: str, scratch: Path, rounds: int, step: Callable[[], None]) -> dict[str, list[Burst]]:
    bursts: dict[str, list[Burst]] = {"loop": [], "ambient": [], "published": []}
    with ExitStack() as stack:
        loop = stack.enter_context(_loop(sdk))
        ours, theirs = stack.enter_context(running([f"ambient-{sdk}", f"published-{sdk}"], scratch))
        takes: dict[str, Callable[[], Burst]] = {
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
def _loop(sdk: str) -> Generator[Callable[[], Burst]]:
    """A process that consumes the SDK's own stream, once per call."""
    command = [sys.executable, "-m", "benchmarks.sdk", "loop", sdk]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as child:
        assert child.stdin
        assert child.stdout
        child.stdout.readline()

        def once() -> Burst:
            assert child.stdin
            assert child.stdout
            print(WORK.prompt, file=child.stdin, flush=True)
            return Burst(**json.loads(child.stdout.readline()))

        yield once
        child.stdin.close()


def _burst(server: Server) -> Burst:
    used = server.cpu_seconds()
    answer = ask(server.port, WORK)
    time.sleep(SETTLE_SECONDS)
    return Burst(events=events_of(answer, WORK), seconds=answer.seconds, cpu=server.cpu_seconds() - used)


def section(bursts: Mapping[str, Mapping[str, Sequence[Burst]]]) -> Section:
    """The table and the two goals of each SDK."""
    rounds = len(next(iter(bursts.values()))["loop"])
    return Section(
        title="A run of 2,000 deltas through a real SDK",
        how=f"Strands and ADK with a scripted model that does not wait; medians of {rounds} rounds, CPU over all rounds. "
        "The bare loop consumes the SDK's own stream in its own process and does nothing with it. This server stores and delivers the run; "
        "the published adapter (`ag_ui_strands`, `ag_ui_adk`) delivers it through its own endpoint.",
        columns=("", "ms", "range", "CPU µs/event", "times the bare loop"),
        rows=[_row(sdk, name, one) for sdk, one in bursts.items() for name in one],
        goals=[goal for sdk, one in bursts.items() for goal in _goals(SDKS[sdk], one)],
    )


TITLES = {"loop": "bare loop", "ambient": "Ambient Runner", "published": "published adapter"}


def _row(sdk: str, name: str, bursts: Mapping[str, Sequence[Burst]]) -> list[str]:
    times = sorted(burst.seconds * 1000 for burst in bursts[name])
    cost = sum(burst.cpu for burst in bursts[name]) / len(times) / WORK.count * 1e6
    return [
        f"{SDKS[sdk]}, {TITLES[name]}",
        f"{statistics.median(times):.1f}",
        f"{times[0]:.1f} to {times[-1]:.1f}",
        f"{cost:.1f}",
        f"{_median(bursts[name]) / _median(bursts['loop']):.2f}",
    ]


def _goals(title: str, bursts: Mapping[str, Sequence[Burst]]) -> list[Goal]:
    over = _median(bursts["ambient"]) / _median(bursts["loop"])
    gain = _median(bursts["published"]) / _median(bursts["ambient"])
    return [
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


def _median(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.seconds for burst in bursts)
