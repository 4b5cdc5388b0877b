"""Run the measurements, print the tables, write docs/benchmarks.md. `--quick` and `--only` print without writing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import (
    burst,
    command_line,
    connect,
    first,
    frameworks,
    live,
    memory,
    redaction,
    report,
    shapes,
    threads,
    tracing,
    web,
)
from benchmarks.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Section

PAGE = ROOT / "docs" / "benchmarks.md"
SCENES = (
    "burst",
    "shapes",
    "redaction",
    "first",
    "connect",
    "threads",
    "web",
    "live",
    "memory",
    "tracing",
    "frameworks",
    "command_line",
)


def main() -> None:
    """Run the measurements that the command line selects."""
    options = _parse_options()
    console = Console()
    scenes = (options.only,) if options.only else SCENES
    with _scratch_directory() as path:
        scratch = Path(path)
        facts = report.describe_machine(scratch)
        sections = _run_scenes(scenes, scratch, quick=options.quick, console=console)
    report.print_sections(console, sections, facts)
    if scenes == SCENES and not options.quick:
        report.write_page(PAGE, sections, facts)
        console.print(f"Written to {PAGE.relative_to(ROOT)}")
    sys.exit(0 if all(goal.met for section in sections for goal in section.goals) else 1)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, about half a minute; nothing is written")
    parser.add_argument("--only", choices=SCENES, help="run one measurement only")
    return parser.parse_args()


def _scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory on the disk of the default store: /tmp is often memory, where fsync costs nothing."""
    parent = ROOT / ".ambient"
    parent.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="bench-", dir=parent)


def _run_scenes(scenes: tuple[str, ...], scratch: Path, *, quick: bool, console: Console) -> list[Section]:
    # Refreshed only between measurements: a refresh thread would take CPU time from the client.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        return [_run_scene(name, scratch, quick, progress) for name in scenes]


def _run_scene(name: str, scratch: Path, quick: bool, progress: Progress) -> Section:
    rounds = {
        "burst": 3 if quick else 15,
        "shapes": 2 if quick else 9,
        "redaction": 3 if quick else 15,
        "first": 50 if quick else 200,
        "connect": 20 if quick else 100,
        "threads": 100 if quick else 500,
        "web": 1,
        "live": 1 if quick else 3,
        "memory": 10 if quick else 50,
        "tracing": 5 if quick else 20,
        "frameworks": 5 if quick else 30,
        "command_line": 2 if quick else 10,
    }[name]
    seconds = 4.0 if quick else 10.0
    match name:
        case "burst":
            step = _progress_step(progress, "20,000 deltas", (rounds + 1) * len(burst.ORDER))
            return burst.build_section(burst.measure(scratch, rounds, step))
        case "shapes":
            step = _progress_step(progress, "shapes of agents", len(shapes.SHAPES))
            return shapes.build_section(shapes.measure(scratch, rounds, step))
        case "redaction":
            step = _progress_step(progress, "redaction", (rounds + 1) * len(redaction.ORDER))
            return redaction.build_section(redaction.measure(scratch, rounds, step))
        case "first":
            step = _progress_step(progress, "POST to RUN_STARTED", rounds + first.WARM_UP)
            return first.build_section(first.measure(scratch, rounds, step))
        case "connect":
            step = _progress_step(progress, "connect to a long thread", 11)
            return connect.build_section(connect.measure(scratch, rounds, step))
        case "threads":
            step = _progress_step(progress, f"list of {threads.THREADS:,} threads", 11)
            return threads.build_section(threads.measure(scratch, rounds, step))
        case "web":
            return web.build_section(web.measure(_progress_step(progress, "fold in a page", 1)))
        case "live":
            step = _progress_step(progress, f"{live.STREAMS} live streams", rounds * len(live.ORDER))
            return live.build_section(live.measure(scratch, rounds, seconds, step))
        case "memory":
            step = _progress_step(progress, "memory", rounds + 1)
            return memory.build_section(memory.measure(scratch, rounds, step))
        case "tracing":
            step = _progress_step(progress, "tracing, receiver down", (rounds + tracing.WARM_UP) * len(tracing.TITLES))
            return tracing.build_section(tracing.measure(scratch, rounds, step))
        case "command_line":
            step = _progress_step(progress, "command-line agents", rounds + 3)
            return command_line.build_section(command_line.measure(scratch, rounds, step))
        case _:
            step = _progress_step(progress, "agents of SDKs", (rounds + 1) * 3 * len(frameworks.SDKS))
            return frameworks.build_section(frameworks.measure(scratch, rounds, step))


def _progress_step(progress: Progress, title: str, total: int) -> Callable[[], None]:
    task = progress.add_task(title.ljust(24), total=total)
    progress.refresh()

    def step() -> None:
        progress.advance(task)
        progress.refresh()

    return step


if __name__ == "__main__":
    main()
