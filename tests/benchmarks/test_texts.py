from __future__ import annotations

import pytest
from benchmarks.texts import TITLES, build_deltas
from benchmarks.workload import Workload, parse_workload


@pytest.mark.parametrize("shape", TITLES)
def test_deltas_of_a_shape_are_as_many_as_asked_for_and_none_is_empty(shape: str) -> None:
    deltas = build_deltas(shape, 500)
    assert len(deltas) == 500
    assert all(deltas)
    assert max(map(len, deltas)) <= 60


@pytest.mark.parametrize(
    "work",
    [
        Workload(count=3),
        Workload(count=20, shape="code"),
        Workload(count=3, every_ms=20),
        Workload(count=3, every_ms=20, ends_words=False),
        Workload(count=20, calls=5),
    ],
)
def test_a_workload_is_read_from_its_prompt(work: Workload) -> None:
    assert parse_workload(work.prompt) == work
