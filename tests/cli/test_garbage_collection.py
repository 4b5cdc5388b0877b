"""What one garbage collection of `ambient serve` scans: that is how long it pauses all streams."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner.cli.garbage_collection import GC_THRESHOLDS, freeze_imported_modules
from tests.faults.loop_pauses import frozen_objects

if TYPE_CHECKING:
    from collections.abc import Generator

STREAMS = 1_000
OBJECTS_OF_A_STREAM = 400
MAX_SCANNED = 15_000
"""Objects of a collection of 5 ms or so."""


@pytest.fixture
def collections() -> Generator[list[tuple[int, int]]]:
    """Return the collections of the test, with the thresholds of `ambient serve`: the generation and the scanned objects of each."""
    found: list[tuple[int, int]] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            generation: int = info["generation"]
            found.append((generation, sum(len(gc.get_objects(young)) for young in range(generation + 1))))

    thresholds = gc.get_threshold()
    with frozen_objects(), called_back(note):
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            yield found
        finally:
            gc.set_threshold(*thresholds)


@contextmanager
def called_back(note: Any) -> Generator[None]:
    gc.callbacks.append(note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)


def test_no_collection_scans_the_objects_of_all_streams(collections: list[tuple[int, int]]) -> None:
    """The middle generation used to grow to 140,000 objects before it was scanned: a pause of 60 ms."""
    streams = [[[] for _ in range(OBJECTS_OF_A_STREAM)] for _ in range(STREAMS)]
    assert len(streams) == STREAMS
    assert {generation for generation, _ in collections} == {0, 1}
    assert max(scanned for _, scanned in collections) <= MAX_SCANNED


def test_reference_cycles_that_survive_are_freed_after_a_bounded_number_of_objects() -> None:
    """Without a bound, the cycles of an agent's framework would fill the memory."""
    newest, middle, oldest = GC_THRESHOLDS
    # A generation is collected at the first collection of the one below it after its threshold is exceeded.
    assert newest * (middle + 2) * (oldest + 1) <= 2_500_000


def test_modules_are_imported_without_collections(collections: list[tuple[int, int]]) -> None:
    frozen = gc.get_freeze_count()
    with freeze_imported_modules():
        imported = [[] for _ in range(100_000)]
    assert gc.isenabled()
    assert not collections
    assert gc.get_freeze_count() >= frozen + len(imported)
