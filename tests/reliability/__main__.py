"""Measure two faults here and with the peers, print the tables, and write them into docs/reliability.md.

Exits with 1 if this server loses an event or a thread; what the peers do is only reported.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.tables import replace_table

from .ours import measure_joins, measure_kill
from .peers import measure_aegra, measure_copilotkit
from .results import JoinResult, KillResult, join_table, kill_table

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
CLIENTS, EVENTS, PACES = 50, 400, [0.0, 0.001]
KILLED_AFTER = 33  # events


def main() -> int:
    options = _parse_options()
    parent = ROOT / ".ambient"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reliability-", dir=parent) as scratch:
        directory = Path(scratch)
        joins, kill = asyncio.run(_measure_ours(directory))
        all_joins = [*joins, *measure_aegra(directory, options.python, CLIENTS, EVENTS, PACES)]
    kills = [kill, measure_copilotkit()]
    print(f"{join_table(all_joins)}\n\n{kill_table(kills)}")
    if not options.print_only:
        replace_table(PAGE, "joins", join_table(all_joins))
        replace_table(PAGE, "kill", kill_table(kills))
    return 0 if not any(result.lost or result.twice for result in joins) and kill.seen == kill.kept else 1


async def _measure_ours(directory: Path) -> tuple[list[JoinResult], KillResult]:
    joins: list[JoinResult] = []
    for number, pace in enumerate(PACES):
        store = directory / f"joins-{number}"
        store.mkdir()
        joins.append(await measure_joins(store, CLIENTS, EVENTS, pace))
    (directory / "kill").mkdir()
    return joins, await measure_kill(directory / "kill", KILLED_AFTER)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--python", default="", help="a Python 3.12 or newer for the peers, if there is none on PATH")
    parser.add_argument("--print-only", action="store_true", help="do not write docs/reliability.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
