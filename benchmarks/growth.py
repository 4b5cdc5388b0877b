"""Costs against history: of a POST, of a replay and of memory, with more runs, more events and more active threads."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.charts import Chart
from benchmarks.cold import Starts, median_cpu_ms, median_ms, restart_server
from benchmarks.history import extend_thread
from benchmarks.replay import replay_thread
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import start_server, start_servers
from benchmarks.turns import Case, measure_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FACTOR = 1.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Lengths of a thread in runs, for short runs and for long ones, and numbers of active threads."""

    lengths: tuple[int, ...]
    short: int
    """Deltas of a short run."""
    long: int
    threads: tuple[int, ...]
    rounds: int
    posts: int


PLANS = Plans(
    smallest=Plan(lengths=(1,), short=2, long=10, threads=(2,), rounds=1, posts=3),
    quick=Plan(lengths=(1, 10, 100), short=20, long=1_000, threads=(32, 100), rounds=1, posts=100),
    full=Plan(
        lengths=(1, 3, 10, 30, 100, 300, 1_000), short=20, long=1_000, threads=(32, 64, 100, 320, 1_000), rounds=5, posts=500
    ),
)  # fmt: skip
THREAD = "grown"
THREAD_CASE = Case(counts=(), runs=5, deltas=200)


def count_steps(plan: Plan) -> int:
    return 2 * (plan.lengths[-1] + len(plan.lengths) * plan.rounds) + len(plan.threads)


@dataclass(frozen=True, kw_only=True)
class Length:
    """Costs at one length of a thread: milliseconds of a POST, bytes and CPU seconds of a replay, resident bytes after it."""

    starts: Starts
    replay_size: int
    replay_cpu: float
    rss: int


@dataclass(frozen=True, kw_only=True)
class Active:
    """Costs with so many active threads: CPU seconds of a run, resident bytes."""

    threads: int
    cpu: float
    rss: int


@dataclass(frozen=True, kw_only=True)
class Growth:
    by_runs: Sequence[Length]
    by_events: Sequence[Length]
    by_threads: Sequence[Active]


def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> Growth:
    """Let a thread of short runs grow, one of long runs, and the number of active threads."""
    return Growth(
        by_runs=_grow_thread(scratch, plan, plan.short, step),
        by_events=_grow_thread(scratch, plan, plan.long, step),
        by_threads=_add_threads(scratch, plan, step),
    )


def _grow_thread(scratch: Path, plan: Plan, deltas: int, step: Callable[[], None]) -> list[Length]:
    store, built, found = scratch / f"growth-{deltas}.db", 0, list[Length]()
    for runs in plan.lengths:
        with start_server("ambient", scratch, store=store) as server:
            extend_thread(server.port, THREAD, runs - built, deltas, step)
        built = runs
        starts = Starts(runs=runs, events=runs * deltas)
        for turn in range(1, plan.rounds + 1):
            with restart_server(scratch, store, THREAD, starts) as server:
                if turn == plan.rounds:
                    # Every restart has added two runs of one delta each, at this length and at those before.
                    deltas_now = runs * deltas + 2 * plan.rounds * (len(found) + 1)
                    replay = replay_thread(server, f"/threads/{THREAD}/events?until=idle", deltas_now)
                    found.append(
                        Length(starts=starts, replay_size=replay.size, replay_cpu=replay.cpu, rss=server.rss())
                    )
            step()
    return found


def _add_threads(scratch: Path, plan: Plan, step: Callable[[], None]) -> list[Active]:
    threads, found = list[str](), list[Active]()
    with start_servers(["ambient"], scratch) as (server,):
        for count in plan.threads:
            for number in range(len(threads), count):
                threads.append(f"active-{number}")
                extend_thread(server.port, threads[-1], THREAD_CASE.runs, THREAD_CASE.deltas)
            turns = measure_turns(server, THREAD_CASE, threads, plan.posts)
            found.append(Active(threads=count, cpu=turns.cpu, rss=server.rss()))
            step()
    return found


_EXPLANATION = """\
The first POST after a restart reads and decodes the checkpoint, folds up to 2,000 entries after it, and converts all messages. After \
1,000 short runs that is 2 + 3.5 + 2.5 ms; after runs of 1,000 deltas, 3 to 5 ms are for 4 MB. A new thread takes 3 ms. Next: decode a \
message when somebody reads its text; fold several short runs together, of which each takes 40 µs."""


def build_section(growth: Growth) -> Section:
    """Return the charts, their values, and the goals that nothing grows with history but the replay."""
    return Section(
        explanation=_EXPLANATION,
        title="Growth",
        how="One thread of short runs, one of runs of 1,000 deltas, and a growing number of active threads "
        f"({THREAD_CASE.runs} runs of {THREAD_CASE.deltas} deltas each, posted to in turn). A POST is measured to RUN_STARTED: the first "
        "after a restart, which does not find the thread in memory, and the second. Both axes are logarithmic: what does not grow is flat.",
        columns=(
            "",
            "first POST, ms",
            "CPU ms",
            "second POST, ms",
            "CPU ms",
            "replay, MB",
            "CPU ms",
            "CPU ms a run",
            "resident, MB",
        ),
        rows=[
            *(_length_row(length) for length in growth.by_runs),
            *(_length_row(length) for length in growth.by_events),
            *(_active_row(active) for active in growth.by_threads),
        ],
        goals=_build_goals(growth),
        charts=_build_charts(growth),
    )


def _length_row(length: Length) -> list[str]:
    starts = length.starts
    return [
        f"{starts.runs:,} runs, {starts.events:,} deltas",
        f"{median_ms(starts.cold):.1f}",
        f"{median_cpu_ms(starts.cold):.1f}",
        f"{median_ms(starts.warm):.1f}",
        f"{median_cpu_ms(starts.warm):.1f}",
        f"{length.replay_size / 1e6:,.2f}",
        f"{length.replay_cpu * 1000:,.0f}",
        "",
        f"{length.rss / 1e6:.0f}",
    ]


def _active_row(active: Active) -> list[str]:
    return [f"{active.threads:,} threads", *[""] * 6, f"{active.cpu * 1000:.1f}", f"{active.rss / 1e6:.0f}"]


def _build_goals(growth: Growth) -> list[Goal]:
    goals = [
        _flat(f"CPU of the first POST, {what}", [median_cpu_ms(length.starts.cold) for length in lengths])
        for what, lengths in (("more runs", growth.by_runs), ("more events", growth.by_events))
    ]
    goals.append(_flat("CPU of a run, more active threads", [active.cpu for active in growth.by_threads]))
    per_delta = [length.replay_size / length.starts.events for length in growth.by_runs]
    goals.append(_flat("bytes of a replay for a delta, more runs", per_delta))
    return goals


def _flat(what: str, values: Sequence[float]) -> Goal:
    """Compare the last value with the median of those before it."""
    factor = values[-1] / statistics.median(values[:-1] or values)
    return Goal(
        what=f"growth: {what}",
        wanted=f"at most {FACTOR:g} times",
        measured=f"{factor:.2f} times",
        met=factor <= FACTOR,
    )


def _build_charts(growth: Growth) -> list[Chart]:
    runs, events = growth.by_runs, growth.by_events
    return [
        _post_chart("post-by-runs", "POST to RUN_STARTED against runs of the thread", "runs of 20 deltas", runs, False),
        _post_chart("post-by-events", "POST to RUN_STARTED against events of the thread", "events", events, True),
        Chart(
            name="run-by-threads",
            title="CPU of a run against active threads",
            x_label="active threads, posted to in turn",
            y_label="CPU ms a run",
            lines={"a run of 20 deltas": [(active.threads, active.cpu * 1000) for active in growth.by_threads]},
        ),
        Chart(
            name="replay",
            title="Replay of a thread against its events",
            x_label="events",
            y_label="MB",
            lines={
                "runs of 20 deltas": [(length.starts.events, length.replay_size / 1e6) for length in runs],
                "runs of 1,000 deltas": [(length.starts.events, length.replay_size / 1e6) for length in events],
            },
        ),
        Chart(
            name="memory-by-events",
            title="Resident memory after a POST and a replay",
            x_label="events of the thread",
            y_label="MB",
            lines={"runs of 1,000 deltas": [(length.starts.events, length.rss / 1e6) for length in events]},
        ),
        Chart(
            name="memory-by-threads",
            title="Resident memory against active threads",
            x_label="active threads, posted to in turn",
            y_label="MB",
            lines={"5 runs of 200 deltas each": [(active.threads, active.rss / 1e6) for active in growth.by_threads]},
        ),
    ]


def _post_chart(name: str, title: str, label: str, lengths: Sequence[Length], by_events: bool) -> Chart:
    xs = [length.starts.events if by_events else length.starts.runs for length in lengths]
    return Chart(
        name=name,
        title=title,
        x_label=label,
        y_label="ms",
        lines={
            "not in memory": list(zip(xs, (median_ms(length.starts.cold) for length in lengths), strict=True)),
            "in memory": list(zip(xs, (median_ms(length.starts.warm) for length in lengths), strict=True)),
            "new thread": list(zip(xs, (median_ms(length.starts.new) for length in lengths), strict=True)),
        },
    )
