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
from benchmarks.client import UnexpectedResponse, count_events, run_workload
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import ROOT, child_environment, published_python, start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK = Workload(count=2_000)
PACED = Workload(count=3, every_ms=20)
UNENDED = Workload(count=3, every_ms=20, ends_words=False)
"""A model that waits between deltas, as real ones do. Without waits, the first text would arrive only with the last."""
TOOLS = Workload(count=20, calls=10)
SDKS = {"strands": "Strands", "adk": "ADK", "langgraph": "LangGraph"}
LIMIT = 1.3
MIN_FIRST_TEXT_SPEEDUP = {"langgraph": 3.0}
"""Goal: factor by which the first text arrives earlier than through the published adapter."""
MAX_BEHIND_MS = 1.0
FIRST_TEXT = b"TEXT_MESSAGE_CONTENT"


@dataclass(frozen=True, kw_only=True)
class Timed(Burst):
    """A run and the seconds until its first text, which a bare loop does not have: one that ends a word, and one that does not."""

    first: float = 0.0
    first_unended: float = 0.0
    tools: float = 0.0
    """Seconds of a run with tool calls."""


PLANS = Plans(smallest=1, quick=5, full=20)


def count_steps(rounds: int) -> int:
    return (rounds + 1) * 3 * len(SDKS)


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
            found = list[dict[str, float]]()
            for work in (WORK, TOOLS):
                print(work.prompt, file=child.stdin, flush=True)
                found.append(json.loads(child.stdout.readline()))
            return Timed(**found[0], tools=found[1]["seconds"])

        yield run_once
        child.stdin.close()


def _run_burst(server: Server) -> Timed:
    cpu_before = server.cpu_seconds()
    response = run_workload(server.port, WORK)
    time.sleep(SETTLE_SECONDS)
    cpu = server.cpu_seconds() - cpu_before
    return Timed(
        events=count_events(response, WORK),
        seconds=response.seconds,
        cpu=cpu,
        first=run_workload(server.port, PACED).seconds_until(FIRST_TEXT),
        first_unended=run_workload(server.port, UNENDED).seconds_until(FIRST_TEXT),
        tools=_run_tools(server),
    )


def _run_tools(server: Server) -> float:
    """Return the seconds of a run with tool calls. Raises: UnexpectedResponse, if one is missing."""
    response = run_workload(server.port, TOOLS)
    body = response.body()
    if (found := body.count(b'"TOOL_CALL_START"')) != TOOLS.calls or b'"RUN_FINISHED"' not in body:
        raise UnexpectedResponse(f"{found} of {TOOLS.calls} tool calls", body[-500:])
    return response.seconds


_EXPLANATION = """\
First text: a request takes 1 ms until its first transaction is submitted, 1 to 2 ms until that is committed and published, 0.5 ms \
until RUN_STARTED is sent, and as much until the agent is prepared; the SDK then takes 3 ms until it has text. In ADK that is sent 0.6 \
ms later. In Strands a STATE_SNAPSHOT comes before, if the request has a state: its commit begins 1 ms late, because the SDK holds the \
GIL, and the text waits 2 ms for it, and another 1 ms for its own. The agent does not begin while RUN_STARTED is being committed: it \
may call a model or a tool at once, and the commit decides if the run has the thread at all. Next: store the snapshot of the state \
that the agent begins with in one transaction with RUN_STARTED. LangGraph against the bare loop: of the time under the GIL three \
quarters is LangChain's model and its callbacks, a tenth the adapter and the run, a tenth encoding, publishing and sending, 3 % the \
commit thread."""


def build_section(bursts: Mapping[str, Mapping[str, Sequence[Timed]]]) -> Section:
    """Return the table and the goals of each SDK."""
    rounds = len(next(iter(bursts.values()))["loop"])
    return Section(
        explanation=_EXPLANATION,
        title="A run of 2,000 deltas through a real SDK",
        how=f"Strands, ADK and LangGraph with a scripted model that does not wait; medians of {rounds} rounds, CPU over all rounds. "
        "The bare loop consumes the SDK's own stream in its own process and does nothing with it. This server stores and delivers the run; "
        "the published adapter (`ag_ui_strands`, `ag_ui_adk`, `ag_ui_langgraph`) delivers it through its own endpoint. "
        f"The time to the first text is measured in separate runs whose model waits {PACED.every_ms} ms between deltas: for text that ends "
        "a word, and for text that does not, which this server holds back until the next delta, because a secret may begin in it. "
        f"A further run makes {TOOLS.calls} tool calls, one after the other, and then {TOOLS.count} deltas. "
        "Not the same work: for Strands, this server reads the text where the model yields it, the bare loop and the published adapter "
        "where the SDK's whole loop does.",
        columns=(
            "",
            "ms",
            "range",
            "first text, ms",
            "not a whole word, ms",
            f"{TOOLS.calls} tool calls, ms",
            "CPU µs/event",
            "times the bare loop",
        ),
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
        *(["", ""] if name == "loop" else [f"{seconds * 1000:.1f}" for seconds in _median_first_texts(bursts[name])]),
        f"{statistics.median(burst.tools for burst in bursts[name]) * 1000:.0f}",
        f"{cost:.1f}",
        f"{_median_seconds(bursts[name]) / _median_seconds(bursts['loop']):.2f}",
    ]


def _build_goals(sdk: str, bursts: Mapping[str, Sequence[Timed]]) -> list[Goal]:
    title, wanted = SDKS[sdk], MIN_FIRST_TEXT_SPEEDUP.get(sdk)
    overhead = _median_seconds(bursts["ambient"]) / _median_seconds(bursts["loop"])
    speedup = _median_seconds(bursts["published"]) / _median_seconds(bursts["ambient"])
    (ours, _), (theirs, _) = _median_first_texts(bursts["ambient"]), _median_first_texts(bursts["published"])
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
        Goal(
            what=f"{title}, first text of a whole word beyond the published adapter",
            wanted=f"within {MAX_BEHIND_MS:g} ms",
            measured=f"{(ours - theirs) * 1000:+.1f} ms",
            met=(ours - theirs) * 1000 <= MAX_BEHIND_MS,
        ),
    ]
    if wanted is not None:
        goals.append(
            Goal(
                what=f"{title}, published adapter's time to the first text against ours",
                wanted=f"at least {wanted:g} times",
                measured=f"{theirs / ours:.2f} times",
                met=theirs / ours >= wanted,
            )
        )
    return goals


def _median_first_texts(bursts: Sequence[Timed]) -> tuple[float, float]:
    return statistics.median(b.first for b in bursts), statistics.median(b.first_unended for b in bursts)


def _median_seconds(bursts: Sequence[Burst]) -> float:
    return statistics.median(burst.seconds for burst in bursts)


def find_missing() -> str:
    """Return the environments of published adapters that `make bench` has not made yet."""
    missing = [sdk for sdk in SDKS if not published_python(sdk).exists()]
    return f"the environments of {', '.join(missing)}: run `make bench`" if missing else ""
