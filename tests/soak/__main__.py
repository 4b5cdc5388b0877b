"""Run a soak, show its progress and print its report. Exits with 1 if a count is wrong."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.tables import replace_table

from .report import is_clean, render_report
from .soak import run_soak

if TYPE_CHECKING:
    from .world import World

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
_MAX_FAILURES = 50


def main() -> int:
    options = _parse_options()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    began = time.monotonic()

    def show_progress(world: World, text: str) -> None:
        counts, wrong = world.counts, sum((+world.wrong).values())
        seen = f"{counts['runs']:,} runs and {counts['events received']:,} events compared, {wrong} wrong"
        print(f"{time.monotonic() - began:6.0f} s  {text:<24}  {seen}", flush=True)

    print(f"Soak of {options.minutes:g} minutes, seed {seed}", flush=True)
    parent = ROOT / ".ambient"  # on the disk of the default store: /tmp is often memory
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=parent) as directory:
        store = Path(directory) / "ambient.db"
        world = asyncio.run(run_soak(store, seconds=60 * options.minutes, seed=seed, report=show_progress))
    report = render_report(world, (time.monotonic() - began) / 60)
    print(f"\n{report}\n")
    for failure in world.failures[:_MAX_FAILURES]:
        print(failure)
    if options.write:
        replace_table(PAGE, "soak", report)
    return 0 if is_clean(world) else 1


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="the order of faults of an earlier soak")
    parser.add_argument("--write", action="store_true", help="write the report to docs/reliability.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
