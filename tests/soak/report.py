"""The report of a soak: every figure is counted or measured."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from statistics import linear_regression, quantiles
from typing import TYPE_CHECKING

from tests.tables import markdown_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .servers import Sample, Server
    from .world import World

__all__ = ["is_clean", "render_report"]

MIB = 1 << 20
_ALWAYS_SHOWN = ("lost", "twice", "out of order", "altered", "without a terminal event", "second terminal event")
_FEWEST_SAMPLES = 8
_WARM_UP = 0.25  # part of the samples of a process that show its start


@dataclass(frozen=True)
class Growth:
    """The slope of a process's memory and descriptors."""

    seconds: float
    rss_per_minute: float
    """MiB."""
    descriptors_per_minute: float
    last_rss: float
    last_descriptors: int


def is_clean(world: World) -> bool:
    return not +world.wrong and world.counts["runs"] > 0


def render_report(world: World, minutes: float) -> str:
    """Return the report as Markdown tables, readable as they are."""
    counts, wrong = world.counts, world.wrong
    summary = [
        ("minutes", f"{minutes:.1f}"),
        ("seed", str(world.seed)),
        ("machine", f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"),
        ("threads", f"{counts['threads']:,} ({counts['threads erased']:,} erased)"),
        ("runs", f"{counts['runs']:,}"),
        ("events stored", f"{counts['events stored']:,}"),
        ("events received", f"{counts['events received']:,} over {counts['connections']:,} connections"),
        ("faults", f"{sum(world.faults.values()):,}"),
        *((name, f"{wrong[name]:,}") for name in _ALWAYS_SHOWN),
        *((name, f"{count:,}") for name, count in sorted(wrong.items()) if name not in _ALWAYS_SHOWN and count),
        ("gaps announced", f"{counts['gaps announced']:,}"),
        ("recovery", describe_recoveries(world.recoveries)),
    ]
    faults = [(name, f"{count:,}") for name, count in sorted(world.faults.items(), key=lambda item: -item[1])]
    return "\n\n".join(
        (
            markdown_table(("", "counted"), summary),
            markdown_table(("fault", "times"), faults),
            markdown_table(("process", "RSS", "RSS slope", "descriptors", "slope"), _growth_rows(world.servers)),
        )
    )


def describe_recoveries(seconds: Sequence[float]) -> str:
    """Return p50 and p99 of the time from the fault of a server to the end of a run that it held."""
    if len(seconds) < 2:
        return f"{len(seconds)} runs"
    cuts = quantiles(seconds, n=100, method="inclusive")
    return f"p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s ({len(seconds):,} runs)"


def _growth_rows(servers: list[Server]) -> list[tuple[str, ...]]:
    return [
        (
            f"{server.name}, {'started ' + str(server.starts) + ' times' if server.is_killable else 'never killed'}",
            *_growth_cells(measure_growth(server.samples)),
        )
        for server in servers
    ]


def _growth_cells(growth: Growth | None) -> tuple[str, ...]:
    if growth is None:
        return ("too short", "", "", "")
    return (
        f"{growth.last_rss:.0f} MiB",
        f"{growth.rss_per_minute:+.2f} MiB/min over {growth.seconds:.0f} s",
        str(growth.last_descriptors),
        f"{growth.descriptors_per_minute:+.2f}/min",
    )


def measure_growth(samples: list[Sample]) -> Growth | None:
    """Return the slopes of the process that lived longest, after its start; None if none lived long enough."""
    samples_by_process = [
        [sample for sample in samples if sample.pid == pid] for pid in {sample.pid for sample in samples}
    ]
    longest = max(samples_by_process, key=len, default=[])
    settled = longest[int(len(longest) * _WARM_UP) :]
    if len(settled) < _FEWEST_SAMPLES:
        return None
    minutes = [(sample.at - settled[0].at) / 60 for sample in settled]
    rss = [sample.rss / MIB for sample in settled]
    descriptors = [float(sample.descriptors) for sample in settled]
    return Growth(
        seconds=minutes[-1] * 60,
        rss_per_minute=linear_regression(minutes, rss).slope,
        descriptors_per_minute=linear_regression(minutes, descriptors).slope,
        last_rss=rss[-1],
        last_descriptors=settled[-1].descriptors,
    )
