"""The longest pauses of the event loop in every scene: a heartbeat inside the served process says when it did not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.heartbeat import Gap, read_gaps, record_gaps
from benchmarks.report import Goal, Section
from benchmarks.scene import Plans, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.scene import Form

LIMIT_MS = 20.0
NO_GAP = Gap(seconds=0.0, cpu=0.0, collecting=0.0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The scenes to repeat, by name, and in which form; all that have pauses if none is named."""

    names: tuple[str, ...] = ()
    form: Form


PLANS = Plans(
    smallest=Plan(names=("warm",), form="smallest"),
    quick=Plan(names=("short_runs", "warm", "replay"), form="quick"),
    full=Plan(form="quick"),
)


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The gaps of the servers of one scene, those of more than a few milliseconds."""

    title: str
    gaps: Sequence[Gap]

    @property
    def longest(self) -> Gap:
        return max(self.gaps, key=lambda gap: gap.seconds, default=NO_GAP)


def build_scene(scenes: Sequence[Scene]) -> Scene:
    """Return the scene that repeats others with a heartbeat."""

    def choose(plan: Plan) -> list[Scene]:
        return [scene for scene in scenes if (scene.name in plan.names if plan.names else scene.has_pauses)]

    def measure(scratch: Path, plan: Plan, step: Callable[[], None]) -> list[Paused]:
        found = list[Paused]()
        for scene in choose(plan):
            directory = scratch / f"pauses-{scene.name}"
            directory.mkdir()
            with record_gaps() as gaps:
                scene.measure(directory, scene.plans.choose(plan.form), lambda: None)
                found.append(Paused(title=scene.title, gaps=read_gaps(gaps)))
            step()
        return found

    return Scene(
        name="pauses",
        title="pauses of the event loop",
        plans=PLANS,
        count_steps=lambda plan: len(choose(plan)),
        measure=measure,
        build_section=build_section,
        has_pauses=False,
    )


_EXPLANATION = """\
A collection scans at most 10,000 objects under load, in 5 to 9 ms, and readers are served in several iterations of the event loop. Live \
streams: from 500 on, the loop is busy all the time. A long iteration is one in which hundreds of agents have a delta due, their writers \
are flushed (2 to 6 ms), and a commit of hundreds of threads is applied to its channels and writers. Next: apply such a commit in \
several iterations too."""


def build_section(found: Sequence[Paused]) -> Section:
    """Return the table, and the goal that no scene has a long pause."""
    return Section(
        explanation=_EXPLANATION,
        title="Pauses",
        how="The scenes again, in their quick form, with a timer every 2 ms in the process of (c): the longest time in which it did not "
        "run, the CPU time that the process used in that time, and the part of it that the garbage collector took. "
        "A gap with little CPU time is another process's time. The CPU of the busiest gap is the longest work that held all streams.",
        columns=(
            "",
            "longest gap, ms",
            "CPU in it, ms",
            "collector in it, ms",
            "gaps over 20 ms",
            "busiest gap, CPU ms",
        ),
        rows=[_build_row(paused) for paused in found],
        goals=[_build_goal(paused) for paused in found],
    )


def _build_row(paused: Paused) -> list[str]:
    longest = paused.longest
    return [
        paused.title,
        f"{longest.seconds * 1000:.0f}",
        f"{longest.cpu * 1000:.0f}",
        f"{longest.collecting * 1000:.0f}",
        f"{sum(gap.seconds * 1000 > LIMIT_MS for gap in paused.gaps):,}",
        f"{max((gap.cpu for gap in paused.gaps), default=0.0) * 1000:.0f}",
    ]


def _build_goal(paused: Paused) -> Goal:
    milliseconds = paused.longest.seconds * 1000
    return Goal(
        what=f"longest pause, {paused.title}",
        wanted=f"at most {LIMIT_MS:g} ms",
        measured=f"{milliseconds:.0f} ms (CPU {paused.longest.cpu * 1000:.0f} ms)",
        met=milliseconds <= LIMIT_MS,
    )
