"""Short runs on one thread, up to the thousandth, beside runs on new threads: neither the POST nor a stored event may cost more."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.client import STARTED, count_events, run_workload
from benchmarks.history import warm_up
from benchmarks.report import Goal, Section, percentile, spread
from benchmarks.scene import Plans
from benchmarks.servers import start_servers
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.servers import Server

WORK, WITH_CALLS = Workload(count=20), Workload(count=20, calls=3)
FACTOR = 1.3
FIRST_THREADS = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs on the thread, in blocks between which as many runs on new threads are measured."""

    runs: int
    block: int


PLANS = Plans(smallest=Plan(runs=4, block=2), quick=Plan(runs=200, block=20), full=Plan(runs=1_000, block=50))


def count_steps(plan: Plan) -> int:
    return 2 * (plan.runs // plan.block) + 1


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive runs: milliseconds to RUN_STARTED of each, and CPU seconds of one."""

    title: str
    started: Sequence[float]
    cpu: float


@dataclass(frozen=True, kw_only=True)
class Warm:
    """Blocks of runs on the thread, blocks of runs on new threads between them, the first and second runs of some threads, and blocks of
    runs with tool calls on a thread of their own."""

    thread: Sequence[Block]
    calling: Sequence[Block]
    new: Sequence[Block]
    first: Block
    second: Block


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Warm:
    """Alternate between the thread and new threads."""
    with start_servers(["ambient"], scratch) as (server,):
        warm_up(server)
        some = [f"some-{number}" for number in range(min(FIRST_THREADS, plan.block))]
        first, second = (_measure_block(server, title, some) for title in ("first run", "second run"))
        step()
        on_thread, on_new = list[Block](), list[Block]()
        for start in range(0, plan.runs, plan.block):
            title = f"runs {start + 1:,} to {start + plan.block:,}"
            on_thread.append(_measure_block(server, title, ["warm"] * plan.block))
            on_new.append(_measure_block(server, "new threads meanwhile", [None] * plan.block))
            step()
        calling = list[Block]()
        for start in range(0, plan.runs, plan.block):
            title = f"with tool calls, runs {start + 1:,} to {start + plan.block:,}"
            calling.append(_measure_block(server, title, ["calling"] * plan.block, WITH_CALLS))
            step()
    return Warm(thread=on_thread, new=on_new, first=first, second=second, calling=calling)


def _measure_block(server: Server, title: str, threads: Sequence[str | None], work: Workload = WORK) -> Block:
    cpu_before = server.cpu_seconds()
    path = "/agents/bench?snapshots=0" if work.calls else "/?snapshots=0"  # The demo agent calls no tools.
    responses = [run_workload(server.port, work, path, thread=thread) for thread in threads]
    cpu = (server.cpu_seconds() - cpu_before) / len(threads)
    for response in responses:
        count_events(response, work)
    return Block(title=title, started=[response.seconds_until(STARTED) * 1000 for response in responses], cpu=cpu)


_EXPLANATION = """\
The models of the thread's messages, tool calls and results are used again by the next run. Checking that no run has kept or changed one \
takes 0.4 microseconds for a text, a third of converting it, and 3 for a message with a tool call: the parts of each are read from memory. \
Next: let a bridge declare that its adapter neither keeps nor changes its input. Of threads of more than 30,000 messages all are converted \
anew: their models would take more than a quarter of `view_cache`."""


def build_section(warm: Warm) -> Section:
    """Return the table, and the goals that the last runs cost what the first do."""
    runs = sum(len(block.started) for block in warm.thread)
    hundredth = min(len(warm.thread) - 1, 100 // len(warm.thread[0].started))
    fresh = Block(
        title="new threads meanwhile",
        started=[ms for block in warm.new for ms in block.started],
        cpu=statistics.mean(block.cpu for block in warm.new),
    )
    on_threads = [blocks[at] for blocks in (warm.thread, warm.calling) for at in (0, hundredth, -1)]
    blocks = (warm.first, warm.second, *on_threads[:3], fresh, *on_threads[3:])
    return Section(
        explanation=_EXPLANATION,
        title=f"{runs:,} short runs on one thread",
        how=f"Runs of {WORK.count} deltas, in blocks of {len(warm.thread[0].started)}, alternating with runs on new threads of the same "
        f"server. The first and second runs are those of {len(warm.first.started)} other threads. "
        f"A run with tool calls has {WITH_CALLS.calls}, each with a thought and a result: {3 * WITH_CALLS.calls + 2} messages.",
        columns=("", "POST to RUN_STARTED, p50 ms", "range", "CPU ms a run"),
        rows=[_build_row(block) for block in blocks],
        goals=[
            goal
            for title, blocks in {"one thread": warm.thread, "one thread with tool calls": warm.calling}.items()
            for goal in (
                _build_goal(f"{title}, POST to RUN_STARTED, p50", [percentile(block.started, 50) for block in blocks]),
                _build_goal(f"{title}, CPU of a run", [block.cpu for block in blocks]),
            )
        ],
    )


def _build_row(block: Block) -> list[str]:
    return [block.title, f"{percentile(block.started, 50):.1f}", spread(block.started), f"{block.cpu * 1000:.1f}"]


def _build_goal(what: str, by_block: Sequence[float]) -> Goal:
    """Compare the last blocks with the first: a fifth of all at each end, so that one slow block decides nothing."""
    share = max(1, len(by_block) // 5)
    first, last = statistics.median(by_block[:share]), statistics.median(by_block[-share:])
    factor = last / first if first else 0.0
    return Goal(
        what=f"{what}, last runs against first",
        wanted=f"at most {FACTOR:g} times",
        measured=f"{factor:.2f} times",
        met=factor <= FACTOR,
    )
