"""Run measurements, print their tables and goals, and write docs/benchmarks.md when all of them ran in full.

`python -m benchmarks` runs all, `python -m benchmarks growth pauses` these two, `--quick` a shorter form of them; `--daily` those that
`make bench-quick` has time for. A missed goal is printed and is no failure: a machine that others use is no gate.

Scenes that ran in full are kept for half a day: `--continue` uses them, measures the others and writes the page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.saved_sections import clear_sections, load_section, save_section
from benchmarks.scenes import SCENES
from benchmarks.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.report import Section
    from benchmarks.scene import Form, Scene

FILE_WIDTH = 180  # characters, so that the tables in a log are not folded
PAGE = ROOT / "docs" / "benchmarks.md"
SAVED = ROOT / ".ambient" / "benchmarks"


def main() -> None:
    """Run the measurements that the command line selects."""
    options = _parse_options()
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    form: Form = "quick" if options.quick or options.daily else "full"
    scenes = _choose_scenes(options.scenes, is_daily=options.daily)
    with _scratch_directory() as path:
        facts = report.describe_machine(Path(path))
        sections = _run_scenes(scenes, Path(path), form, console, is_continued=options.is_continued)
    report.print_summary(console, sections, facts)
    if options.charts:
        report.write_charts(Path(options.charts), sections)
    if len(scenes) == len(SCENES) and form == "full":
        report.write_page(PAGE, sections, facts)
        clear_sections(SAVED)
        console.print(f"Written to {PAGE.relative_to(ROOT)}")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [scene.name for scene in SCENES]
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"scenes to run; all by default: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="few rounds; nothing is written")
    parser.add_argument("--daily", action="store_true", help="the scenes of `make bench-quick`, in their quick form")
    parser.add_argument("--continue", action="store_true", dest="is_continued", help="go on with an interrupted run")
    parser.add_argument("--charts", metavar="DIRECTORY", help="write the charts of the scenes into this directory")
    options = parser.parse_args()
    if unknown := set(options.scenes) - set(names):
        parser.error(f"unknown scene {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def _choose_scenes(names: Sequence[str], *, is_daily: bool) -> list[Scene]:
    return [scene for scene in SCENES if (scene.name in names if names else scene.is_daily or not is_daily)]


def _scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory on the disk of the default store: /tmp is often memory, where fsync costs nothing."""
    parent = ROOT / ".ambient"
    parent.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="bench-", dir=parent)


def _run_scenes(
    scenes: Sequence[Scene], scratch: Path, form: Form, console: Console, *, is_continued: bool
) -> list[Section]:
    # Refreshed only between measurements: a refresh thread would take CPU time from the client.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    sections = list[report.Section]()
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        for scene in scenes:
            if missing := scene.find_missing():
                console.print(f"{scene.name} is left out. Missing: {missing}")
                continue
            section = load_section(SAVED, scene.name) if is_continued and form == "full" else None
            sections.append(section or _run_scene(scene, scratch, form, progress))
            report.print_section(console, sections[-1])  # At once: all of them take most of an hour.
    return sections


def _run_scene(scene: Scene, scratch: Path, form: Form, progress: Progress) -> Section:
    directory = scratch / scene.name
    directory.mkdir()
    step = _progress_step(progress, scene.title, scene.count_steps(scene.plans.choose(form)))
    section = scene.run(directory, form, step)
    if form == "full":
        save_section(SAVED, scene.name, section)
    return section


def _progress_step(progress: Progress, title: str, total: int) -> Callable[[], None]:
    task = progress.add_task(title.ljust(32), total=total)
    progress.refresh()

    def step() -> None:
        progress.advance(task)
        progress.refresh()

    return step


if __name__ == "__main__":
    main()
