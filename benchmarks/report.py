"""Figures as tables: printed for the person at the terminal, written as Markdown for everybody else."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

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
    """Something we promised ourselves, and what came out."""

    what: str
    wanted: str
    measured: str
    met: bool

    def row(self) -> list[str]:
        return [self.what, self.wanted, self.measured, "ok" if self.met else "missed"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One measurement: how it was taken, its table and the goals it answers."""

    title: str
    how: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal] = field(default=())


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def machine(scratch: Path) -> list[tuple[str, str]]:
    """What the figures depend on. No names of hosts and no paths."""
    return [
        ("cores", str(os.cpu_count())),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("disk, write and fsync of 4 KiB", f"{_fsync_ms(scratch):.2f} ms"),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        *((name, version(name)) for name in PACKAGES),
    ]


def _fsync_ms(scratch: Path, times: int = 50) -> float:
    taken = list[float]()
    with (scratch / "fsync.probe").open("wb", buffering=0) as probe:
        for _ in range(times):
            began = time.perf_counter()
            probe.write(b"x" * 4096)
            os.fsync(probe.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def show(console: Console, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> None:
    """Print every table, the goals last."""
    for section in sections:
        console.print(_table(section.title, section.columns, section.rows))
    console.print(_table("Goals", GOAL_COLUMNS, _goals(sections)))
    console.print(", ".join(f"{name} {value}" for name, value in facts), style="dim")


GOAL_COLUMNS = ("goal", "wanted", "measured", "")


def _goals(sections: Sequence[Section]) -> list[list[str]]:
    return [goal.row() for section in sections for goal in section.goals]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row, style={"ok": "green", "missed": "red"}.get(row[-1]))
    return table


def write(path: Path, sections: Sequence[Section], facts: Sequence[tuple[str, str]]) -> None:
    """Write the page."""
    parts = ["# Benchmarks", INTRODUCTION, "## Goals", _markdown(GOAL_COLUMNS, _goals(sections))]
    for section in sections:
        parts += [f"## {section.title}", section.how, _markdown(section.columns, section.rows)]
    parts += ["## Machine", _markdown(("what", "value"), facts)]
    path.write_text("\n\n".join(parts) + "\n")


INTRODUCTION = """\
Written by `make bench`; do not edit. Every server is its own process with one worker, uvloop and httptools. The client
is a raw socket reader in another process on the same machine. All contenders of a measurement run in the same session
and take turns within each round, so that a noisy moment hurts all of them. Figures from one small machine say how the
contenders compare, not how fast yours will be.

- **(a)** is the pattern of every published adapter: `ag_ui.core` models, `EventEncoder`, FastAPI's `StreamingResponse`. Nothing is stored.
- **(b)** sends the same events through `sse-starlette`. Nothing is stored.
- **(c)** is this server as `ambient serve` starts it: verified, redacted, committed to SQLite with fsync, then delivered.
- **(d)** is a bare ASGI app that sends ready bytes, one `send` per event. Nothing is built, encoded or stored."""


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))
