"""JSON Patch as the vectors in `tests/recordings/json_patch.json` describe it. The web packages pass the same file."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import apply_patch
from tests.recordings import HERE

VECTORS: list[dict[str, Any]] = json.loads((HERE / "json_patch.json").read_text(encoding="utf-8"))


def outcome_of(vector: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": apply_patch(vector["document"], vector["patch"])}
    except PatchConflict:
        return {"conflict": True}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_patch_applies_or_conflicts_as_on_file_and_changes_nothing_in_place(vector: dict[str, Any]) -> None:
    before = copy.deepcopy(vector)
    expected = {key: vector[key] for key in ("result", "conflict") if key in vector}
    assert outcome_of(vector) == expected
    assert vector == before


def test_the_names_of_the_vectors_are_unique() -> None:
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
