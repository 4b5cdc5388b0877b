"""JSON Patch as the vectors in `tests/recordings/json_patch.json` describe it. The web packages pass the same file."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import PatchedDocument, apply_patch
from tests.hypothesis_profiles import examples
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


_keys = st.sampled_from(["a", "b", "c", "~1", "__proto__", "0", ""])
_values = st.sampled_from([1, True, None, "x", {}, {"a": {"b": 1}}, [1, {"a": 2}]])
_paths = st.lists(_keys, max_size=3).map(lambda keys: "".join(f"/{key}" for key in keys)) | st.sampled_from(
    ["a", 5, "/-"]
)
_operations = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["replace", "replace", "replace", "add", "remove", "copy", "move", "test"]),
        "path": _paths,
        "value": _values,
        "from": _paths,
    },
)
_patches = st.lists(st.lists(_operations, max_size=2), max_size=6)


@examples(300)
@given(_patches)
def test_patches_give_the_same_one_after_the_other_as_each_on_a_new_document(patches: list[list[Any]]) -> None:
    """A document that was patched before is changed in place, its members by a shorter way."""
    plain: Any = {"a": 1, "b": {"a": [1, 2]}, "c": {"b": {}}, "__proto__": 1}
    patched = PatchedDocument(plain)
    for patch in patches:
        before = copy.deepcopy(patched.root)
        expected, conflict = plain, False
        try:
            expected = apply_patch(plain, patch)
        except PatchConflict:
            conflict = True
        try:
            patched.apply(patch)
            assert not conflict
            assert msgspec.json.encode(patched.root) == msgspec.json.encode(expected)
            patched.undo()
            assert patched.root == before
            patched.apply(patch)
        except PatchConflict:
            assert conflict
        plain = expected
        assert msgspec.json.encode(patched.root) == msgspec.json.encode(plain)


REPLACING_OPERATIONS: dict[str, dict[str, Any]] = {
    "replaced": {"op": "replace", "path": "/a", "value": {"x": {"new": 1}}},
    "added again": {"op": "add", "path": "/a", "value": {"x": {"new": 1}}},
    "moved": {"op": "move", "from": "/c", "path": "/a"},
    "copied": {"op": "copy", "from": "/c", "path": "/a"},
    "shifted": {"op": "add", "path": "/list/0", "value": {"x": {"new": 1}}},
    "removed before": {"op": "remove", "path": "/list/0"},
}


@pytest.mark.parametrize("name", REPLACING_OPERATIONS)
def test_a_patch_follows_a_path_again_after_something_on_it_was_replaced(name: str) -> None:
    """A patch keeps the last containers that it wrote to: another one may be at their path since."""
    operations = [
        {"op": "add", "path": "/a/x/first", "value": 1},
        {"op": "add", "path": "/list/0/x/first", "value": 1},
        {"op": "add", "path": "/b/x/first", "value": 1},
        REPLACING_OPERATIONS[name],
        {"op": "add", "path": "/a/x/last", "value": 2},
        {"op": "add", "path": "/list/0/x/last", "value": 2},
    ]
    items = [{"x": {"item": number}} for number in range(3)]
    document = {"a": {"x": {}}, "b": {"x": {}}, "c": {"x": {"old": 1}}, "list": items}
    expected = document
    for operation in operations:
        expected = copy.deepcopy(apply_patch(expected, [operation]))
    assert apply_patch(document, operations) == expected
