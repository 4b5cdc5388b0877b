"""Plant secrets in everything an agent and a client can send, and look for them in everything that leaves the server.
        report_progress(len(placements))

    python -m tests.fuzz.secrets --placements 10000 --seed 1

Prints a table of classes and forms. Exits with 1 if a secret is found, after the line that repeats its placement.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import anyio
from ahocorasick_rs import AhoCorasick
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

from tests.fuzz.placements import Placement, place_secret
from tests.fuzz.planted_secrets import CLASSES, random_token
from tests.fuzz.planted_server import PlantedServer, Surface, export_threads, serve_planted
from tests.fuzz.scripted_models import FRAMEWORKS, ScriptedFramework, build_framework

AGENTS = ("demo", "agui")
_BATCH = 100
"""Placements of one server."""
_RUNS_PER_THREAD = 8


@dataclass(kw_only=True)
class Result:
    """The secrets that were planted, and those of them that were found."""

    placed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    found: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    leaks: list[tuple[Placement, str]] = field(default_factory=list[tuple[Placement, str]])
    """The placements that were found, each with the names of the surfaces."""
    refused: int = 0

    def add(self, placements: Iterable[Placement], found: dict[int, set[str]]) -> None:
        for placement in placements:
            cell = (placement.planted.secret_class, placement.planted.form)
            self.placed[cell] += 1
            if surfaces := found.get(placement.index):
                self.found[cell] += 1
                self.leaks.append((placement, ", ".join(sorted(surfaces))))


def fuzz_secrets(
    agent: str,
    indexes: Sequence[int],
    seed: int,
    result: Result,
    *,
    redacts: bool = True,
    report_progress: Callable[[int], None] = lambda tried: None,
) -> None:
    """Try these placements with one agent. Without redaction, nearly all of them are found."""
    for start in range(0, len(indexes), _BATCH):
        placements = [place_secret(seed, agent, index) for index in indexes[start : start + _BATCH]]
        with tempfile.TemporaryDirectory(prefix="ambient-fuzz-") as directory:
            server = anyio.run(_run_placements, placements, Path(directory), redacts)
            export_threads(server)
        result.add(placements, _find_planted(placements, server.surfaces))
        result.refused += server.refused
        server.surfaces.clear()  # FastAPI keeps the routes of an app, and with them the server.


async def _run_placements(placements: Sequence[Placement], directory: Path, redacts: bool) -> PlantedServer:
    environ = {
        f"N{placement.index}_{placement.planted.variable}": placement.planted.credential
        for placement in placements
        if placement.source == "env"
    }
    agent = placements[0].agent
    framework = build_framework(agent) if agent in FRAMEWORKS else None
    bridges = {agent: framework.bridge} if framework else None
    async with serve_planted(directory, environ, bridges, redacts=redacts) as server:
        for number, placement in enumerate(placements):
            await _run_placement(server, placement, f"p{number // _RUNS_PER_THREAD}", framework)
    return server


async def _run_placement(
    server: PlantedServer, placement: Placement, owner: str, framework: ScriptedFramework | None
) -> None:
    run, planted = f"run-{placement.index}", placement.planted
    server.grants[owner] = {planted.variable: planted.credential} if placement.source in {"granted", "rotated"} else {}
    if placement.source == "rotated":
        await server.run(placement.agent, owner, f"{run}-before", {})
        server.grants[owner] = {planted.variable: random_token(_rng_of(placement), 32)}
    match placement.place:
        case "log":
            server.scripts[run] = [planted.text]
        case "exception":
            server.scripts[run] = [RuntimeError(planted.text)]
        case "model" if framework:
            framework.plan_run(placement.detail, _rng_of(placement), planted.text)
        case _:
            server.scripts[run] = placement.events
    is_run = placement.place not in {"patch", "feedback"}
    await server.run(placement.agent, owner, run, placement.body if is_run else {})
    thread = f"thread-of-{owner}"
    if placement.place == "patch":
        await server.request("patch", "PATCH", f"/state/{thread}", owner, json=placement.body["patch"])
    if placement.place == "feedback":
        payload = {"userId": "u", "comment": planted.text, "value": True, "messageId": "m"}
        body = {"type": "META", "metaType": "thumbs_up", "payload": payload, "threadId": thread}
        await server.request("feedback", "POST", "/feedback", owner, json=body)


def _find_planted(placements: Sequence[Placement], surfaces: Iterable[Surface]) -> dict[int, set[str]]:
    """Return the surfaces in which something of a placement was found, by the number of the placement."""
    windows = {
        window: placement.index
        for placement in placements
        for window in placement.planted.windows(is_split=placement.is_split)
    }
    automaton, owners = AhoCorasick(list(windows)), list(windows.values())
    found: dict[int, set[str]] = {}
    for surface in surfaces:
        for index, _, _ in automaton.find_matches_as_indexes(surface.text, overlapping=True):
            found.setdefault(owners[index], set()).add(surface.name)
    return found


def _rng_of(placement: Placement) -> Random:
    return Random(f"{placement.agent}/{placement.index}")


def print_result(result: Result, seed: int, console: Console) -> None:
    table = Table("class", "form", "placed", "found")
    for (secret_class, form), placed in sorted(
        result.placed.items(), key=lambda cell: (CLASSES.index(cell[0][0]), cell[0][1])
    ):
        table.add_row(secret_class, form, str(placed), str(result.found[secret_class, form]))
    console.print(table)
    console.print(f"{result.placed.total()} placed, {result.found.total()} found; {result.refused} requests refused.")
    for placement, surfaces in result.leaks:
        console.print(
            f"{placement.planted.secret_class} {placement.planted.form} {placement.planted.pattern} in {placement.detail}: "
            f"found in {surfaces}",
            markup=False,
        )
        console.print(
            f"  python -m tests.fuzz.secrets --agent {placement.agent} --seed {seed} --placement {placement.index}",
            markup=False,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=(*AGENTS, *FRAMEWORKS), help="one agent [default: demo and agui]")
    parser.add_argument("--placement", type=int, help="repeat the placement of this number")
    options = parser.parse_args()
    agents = (options.agent,) if options.agent else AGENTS
    result = Result()
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("placements", total=options.placements if options.placement is None else len(agents))
        for number, agent in enumerate(agents):
            indexes = (
                range(number, options.placements, len(agents)) if options.placement is None else [options.placement]
            )
            fuzz_secrets(agent, indexes, options.seed, result, report_progress=partial(progress.advance, task))
    print_result(result, options.seed, Console(soft_wrap=True))
    return 1 if result.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
