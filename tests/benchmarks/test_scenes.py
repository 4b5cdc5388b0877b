"""Every scene of the benchmarks in its smallest form: it measures, and its section can be printed. What it measures means nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from benchmarks.report import Section, print_sections
from benchmarks.scene import Scene
from benchmarks.scenes import SCENES
from benchmarks.servers import share_servers
from rich.console import Console

LONG = {
    "startup": "it starts ten processes",
    "tracing": "it waits for exporters",
    "frameworks": "it starts nine processes with SDKs",
    "command_line": "it starts hundreds of processes",
    "shapes": "it sends 16 bursts through each of two servers, twice",
    "pauses": "it repeats most of the others",
    "growth": "it repeats three others at several sizes",
}
"""Scenes whose smallest form takes too long for every day."""


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with share_servers(tmp_path_factory.mktemp("servers")):
        yield


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_scene_runs_in_its_smallest_form(scene: Scene, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if missing := scene.find_missing():
        pytest.skip(f"missing: {missing}")
    if scene.name in LONG and not request.config.getoption("long"):
        pytest.skip(f"{LONG[scene.name]}; --long runs it")
    steps: list[None] = []
    section = scene.run(tmp_path, "smallest", lambda: steps.append(None))
    assert len(steps) == scene.count_steps(scene.plans.smallest)
    assert section.rows
    assert {len(row) for row in section.rows} == {len(section.columns)}
    assert section.title in print_to_text(section)


def print_to_text(section: Section) -> str:
    output = StringIO()
    print_sections(Console(file=output, width=400), [section], [])
    return " ".join(output.getvalue().split())  # Titles are wrapped at the width of their table.


def test_scenes_have_names_of_their_own() -> None:
    assert len({scene.name for scene in SCENES}) == len(SCENES)
