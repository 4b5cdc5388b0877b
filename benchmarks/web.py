"""The reducer of the web packages in Node: a fold of 100,000 frames, as they are and read from an event stream."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from benchmarks.report import Goal, Section
from benchmarks.scene import Plans
from benchmarks.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WEB = ROOT / "web"

Result = dict[str, Any]


PLANS = Plans(smallest=1, quick=1, full=1)


def count_steps(rounds: int) -> int:
    return rounds


def measure(scratch: Path, rounds: int, step: Callable[[], None]) -> list[Result]:
    """Return name, best milliseconds, frames and, for those with a goal, the limit of each fold; nothing without npm."""
    if shutil.which("npm") is None:
        step()
        return []
    subprocess.run(["npm", "run", "--silent", "build"], cwd=WEB, check=True)
    # It exits with 1 if a limit is exceeded, which the goals say too.
    done = subprocess.run(["node", "bench/fold.mjs", "--json"], cwd=WEB, check=False, stdout=subprocess.PIPE)
    step()
    return [json.loads(line) for line in done.stdout.splitlines()]


def build_section(results: Sequence[Result]) -> Section:
    """Return the table and the goals for folds."""
    return Section(
        title="Fold in a page",
        how=(
            "Frames of 100 runs with text, tool calls and state patches, folded by `@ambient-runner/core` in Node: all at once, one by one "
            "as a page that is notified of each, and read from an event stream in 16 KiB chunks before they are folded. The best of five."
            if results
            else "Not measured: npm is not installed."
        ),
        columns=("", "frames", "ms"),
        rows=[[result["name"], f"{result['frames']:,}", f"{result['ms']:.0f}"] for result in results],
        goals=[_build_goal(result) for result in results if "limit" in result],
    )


def _build_goal(result: Result) -> Goal:
    return Goal(
        what=f"{result['name']}, {result['frames']:,} frames",
        wanted=f"within {result['limit']} ms",
        measured=f"{result['ms']:.0f} ms",
        met=result["ms"] <= result["limit"],
    )


def find_missing() -> str:
    """Return what the web packages are built with."""
    return "" if (WEB / "node_modules" / ".bin").exists() else "the packages of web/: run `make bench`"
