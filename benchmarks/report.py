"""Results as tables: printed to the terminal and written as Markdown."""

from __future__ import annotations

import math
import os
import platform
import sqlite3
import statistics
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as RichTable

from benchmarks.charts import draw_chart

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from benchmarks.charts import Chart

PACKAGES = (
    "ambient-runner",
    "ag-ui-protocol",
    "fastapi",
    "starlette",
    "sse-starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "msgspec",
    "strands-agents",
    "google-adk",
    "langgraph",
    "langchain-core",
    "opentelemetry-sdk",
)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A goal and the measured result."""

    what: str
    wanted: str
    measured: str
    met: bool

    def row(self) -> list[str]:
        return [self.what, self.wanted, self.measured, "ok" if self.met else "missed"]


def at_most(what: str, value: float, limit: float, unit: str, digits: int = 1) -> Goal:
    """Return a goal that a value stays below a limit."""
    return Goal(
        what=what, wanted=f"at most {limit:g} {unit}", measured=f"{value:,.{digits}f} {unit}", met=value <= limit
    )


def at_least(what: str, value: float, limit: float, unit: str, digits: int = 1) -> Goal:
    """Return a goal that a value reaches a limit."""
    return Goal(
        what=what, wanted=f"at least {limit:g} {unit}", measured=f"{value:,.{digits}f} {unit}", met=value >= limit
    )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """An input that leaves the fast path: its events per second, and those of text for comparison."""

    what: str
    rate: float
    plain_rate: float

    def row(self) -> list[str]:
        return [self.what, f"{self.rate:,.0f}", f"{self.plain_rate / self.rate:.1f}"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One measurement: how it was made, its table and its goals."""

    title: str
    how: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal] = field(default=())
    costs: Sequence[Cost] = field(default=())
    """Inputs for the page's section about the fast path."""
    charts: Sequence[Chart] = field(default=())
    explanation: str = ""
    """Where the time goes, by a profile, and what to try next. On the page while one of the goals is missed."""

    @property
    def missed_goals(self) -> list[Goal]:
        return [goal for goal in self.goals if not goal.met]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the smallest and the largest value."""
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"


def describe_machine(scratch: Path) -> list[tuple[str, str]]:
    """Return what the results depend on: hardware and versions. No host names and no paths."""
    return [
        ("cores", str(os.cpu_count())),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("disk, write and fsync of 4 KiB", f"{_fsync_ms(scratch):.2f} ms"),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        *((name, version(name)) for name in PACKAGES),
    ]


def _fsync_ms(scratch: Path, times: int = 50) -> float:
    durations = list[float]()
    with (scratch / "fsync.probe").open("wb", buffering=0) as probe:
        for _ in range(times):
            start = time.perf_counter()
            probe.write(b"x" * 4096)
            os.fsync(probe.fileno())
            durations.append((time.perf_counter() - start) * 1000)
    return statistics.median(durations)


def print_sections(console: Console, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> None:
    """Print every table, the goals last."""
    for section in sections:
        print_section(console, section)
    print_summary(console, sections, facts)


def print_section(console: Console, section: Section) -> None:
    """Print one table."""
    console.print(_table(section.title, section.columns, section.rows))


def print_summary(console: Console, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> None:
    """Print what all tables have in common: the costs of inputs, the goals and the machine."""
    if costs := _cost_rows(sections):
        console.print(_table("Inputs that leave the fast path", COST_COLUMNS, costs))
    console.print(_table("Goals", GOAL_COLUMNS, _goal_rows(sections)))
    console.print(summarize_goals(sections))
    console.print(", ".join(f"{name} {value}" for name, value in facts), style="dim")


GOAL_COLUMNS = ("goal", "wanted", "measured", "")
COST_COLUMNS = ("input", "events/s", "times slower than numbers")


def summarize_goals(sections: Sequence[Section]) -> str:
    """Return a sentence: how many goals there are, and which were missed."""
    count = sum(len(section.goals) for section in sections)
    missed = [goal.what for section in sections for goal in section.missed_goals]
    return f"{count - len(missed)} of {count} goals met." + (f" Missed: {'; '.join(missed)}." if missed else "")


def _cost_rows(sections: Sequence[Section]) -> list[list[str]]:
    return [cost.row() for section in sections for cost in section.costs]


def _goal_rows(sections: Sequence[Section]) -> list[list[str]]:
    return [goal.row() for section in sections for goal in section.goals]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row, style={"ok": "green", "missed": "red"}.get(row[-1]))
    return table


def write_page(path: Path, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> None:
    """Write the page, and its charts beside it."""
    parts = ["# Benchmarks", INTRODUCTION, "## Goals", _markdown(GOAL_COLUMNS, _goal_rows(sections))]
    if missed := [section for section in sections if section.missed_goals]:
        parts += ["## Missed goals", MISSED_INTRODUCTION, "\n".join(map(_explain_missed, missed))]
    for section in sections:
        charts = [f"![{chart.title}]({path.stem}/{chart.name}.svg)" for chart in section.charts]
        parts += [f"## {section.title}", section.how, *charts, _markdown(section.columns, section.rows)]
    parts += ["## Inputs that leave the fast path", FAST_PATH, _markdown(COST_COLUMNS, _cost_rows(sections))]
    parts += ["## Machine", _markdown(("what", "value"), facts)]
    path.write_text("\n\n".join(parts) + "\n")
    write_charts(path.with_suffix(""), sections)


def _explain_missed(section: Section) -> str:
    missed = "; ".join(f"{goal.what}: {goal.measured}, {goal.wanted} wanted" for goal in section.missed_goals)
    return f"- **{section.title}**: {missed}. {section.explanation or 'Not explained yet.'}"


def write_charts(directory: Path, sections: Sequence[Section]) -> None:
    """Write the charts of all sections as SVG files."""
    for chart in (chart for section in sections for chart in section.charts):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{chart.name}.svg").write_text(draw_chart(chart))


MISSED_INTRODUCTION = """Written by hand from py-spy profiles of the server in November 2026: where the time goes, and what to try next.
The shares are those of the profiles, not of this run."""

FAST_PATH = """Deltas, and what starts or ends a message, a tool call, reasoning or a step, are redacted, encoded and stored together. All
other events are handled one at a time and give the same bytes. These inputs were measured as bursts through (c), against numbered deltas of
one message: a factor near 1 stays on the fast path, the others say what it costs to leave it."""

INTRODUCTION = """\
Generated by `make bench`; do not edit. Every server is a separate process with one worker, uvloop and httptools. The client
is a raw socket reader in another process on the same machine. All servers of a measurement run in the same session
and alternate within each round, so that noise affects all of them. These figures are from one small machine: they compare
the servers and do not predict the performance of another machine. A missed goal is shown as missed and fails nothing.

`make bench-quick` prints first figures within two minutes and writes nothing. `python -m benchmarks growth pauses` measures some of the
scenes, `--quick` in a shorter form; `python -m benchmarks --help` lists all.

- **(a)** is the pattern of every published adapter: `ag_ui.core` models, `EventEncoder`, FastAPI's `StreamingResponse`. Nothing is stored.
- **(b)** sends the same events through `sse-starlette`. Nothing is stored.
- **(c)** is this server as `ambient serve` starts it: verified, redacted, committed to SQLite with fsync, then delivered.
- **(d)** is a bare ASGI app that sends prepared bytes, one `send` per event. Nothing is built, encoded or stored."""


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))
