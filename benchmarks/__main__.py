"""Run the measurements, print the tables, write docs/benchmarks.md. `--quick` and `--only` print without writing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import burst, first, frameworks, live, memory, report, tracing
from benchmarks.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Section

PAGE = ROOT / "docs" / "benchmarks.md"
SCENES = ("burst", "first", "live", "memory", "tracing", "frameworks")


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    console = Console()
    scenes = (options.only,) if options.only else SCENES
    with _scratch() as folder:
        scratch = Path(folder)
        facts = report.machine(scratch)
        sections = _measure(scenes, scratch, quick=options.quick, console=console)
    report.show(console, sections, facts)
    if scenes == SCENES and not options.quick:
        report.write(PAGE, sections, facts)
        console.print(f"Written to {PAGE.relative_to(ROOT)}")
    sys.exit(0 if all(goal.met for section in sections for goal in section.goals) else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: a first impression in half a minute")
    parser.add_argument("--only", choices=SCENES, help="one measurement")
    return parser.parse_args()


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Beside the default store, on a disk that really syncs: a temporary directory is often memory."""
    beside = ROOT / ".ambient"
    beside.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="bench-", dir=beside)


def _measure(scenes: tuple[str, ...], scratch: Path, *, quick: bool, console: Console) -> list[Section]:
    # Drawn only between measurements: a refreshing thread would take time from the client.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        return [_scene(name, scratch, quick, progress) for name in scenes]


def _scene(name: str, scratch: Path, quick: bool, progress: Progress) -> Section:
    rounds = {
        "burst": 3 if quick else 15,
        "first": 50 if quick else 200,
        "live": 1 if quick else 3,
        "memory": 10 if quick else 50,
        "tracing": 5 if quick else 20,
        "frameworks": 5 if quick else 30,
    }[name]
    seconds = 4.0 if quick else 10.0
    match name:
        case "burst":
            step = _stepper(progress, "20,000 deltas", (rounds + 1) * len(burst.ORDER))
            return burst.section(burst.measure(scratch, rounds, step))
        case "first":
            step = _stepper(progress, "POST to RUN_STARTED", rounds + first.WARM_UP)
            return first.section(first.measure(scratch, rounds, step))
        case "live":
            step = _stepper(progress, f"{live.STREAMS} live streams", rounds * len(live.ORDER))
            return live.section(live.measure(scratch, rounds, seconds, step))
        case "memory":
            step = _stepper(progress, "memory", rounds + 1)
            return memory.section(memory.measure(scratch, rounds, step))
        case "tracing":
            step = _stepper(progress, "tracing, receiver down", (rounds + tracing.WARM_UP) * len(tracing.TITLES))
            return tracing.section(tracing.measure(scratch, rounds, step))
        case _:
            step = _stepper(progress, "agents of SDKs", (rounds + 1) * 3 * len(frameworks.SDKS))
            return frameworks.section(frameworks.measure(scratch, rounds, step))


def _stepper(progress: Progress, title: str, total: int) -> Callable[[], None]:
    task = progress.add_task(title.ljust(24), total=total)
    progress.refresh()

    def step() -> None:
        progress.advance(task)
        progress.refresh()

    return step


if __name__ == "__main__":
    main()
