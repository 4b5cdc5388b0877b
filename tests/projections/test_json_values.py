from __future__ import annotations

from typing import Any

import pytest

from ambient_runner.projections.json_values import canonical_json, canonical_text


@pytest.mark.parametrize(
    ("first", "second"),
    [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([3.0], [3]), ((1, 2), [1, 2]), ({"a": {"b": 2.0}}, {"a": {"b": 2}})],
    ids=repr,
)
def test_equal_values_have_one_spelling(first: Any, second: Any) -> None:
    assert canonical_json(first) == canonical_json(second)


@pytest.mark.parametrize(
    ("first", "second"), [(1, True), (0, False), (None, 0), ("1", 1), (1.5, 1), ({"a": 1}, {"a": None})], ids=repr
)
def test_different_values_have_different_spellings(first: Any, second: Any) -> None:
    assert canonical_json(first) != canonical_json(second)


@pytest.mark.parametrize("text", ["", "{broken", "\ud800", "[" * 100_000], ids=["empty", "broken", "surrogate", "deep"])
def test_text_that_is_not_json_stays_as_it_is(text: str) -> None:
    assert canonical_text(text) == text


def test_a_lone_surrogate_inside_of_json_has_a_spelling() -> None:
    assert canonical_text('{"a": "\\ud800"}').encode() == b'{"a":"\\ud800"}'
