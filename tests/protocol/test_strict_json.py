from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.strict_json import is_too_deep, loads

TEXTS = st.text(alphabet='[]{}"\\ax', max_size=4)
VALUES = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=30,
)


def depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)  # pyright: ignore[reportUnknownArgumentType]
        case list():
            return 1 + max(map(depth, value), default=0)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return 0


@given(value=VALUES, limit=st.integers(0, 8))
def test_the_depth_of_a_text_is_that_of_its_value(value: object, limit: int) -> None:
    assert is_too_deep(json.dumps(value).encode(), limit) == (depth(value) > limit)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("\ud83d", "The body"),
        ({"a": ["x", {"b": "\ud83d"}]}, "a[1].b"),
        ({"a": {"\ud83d": 1}}, "a"),
        ([{}, ["\ude00"]], "[1][0]"),
        ({"k" * 100: "\ud83d"}, "k" * 64),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        loads(json.dumps(value).encode())
    assert refused.value.message == f"{place} holds half of a surrogate pair, which is not text."


def test_a_whole_surrogate_pair_is_read_in_memory_of_the_size_of_the_body() -> None:
    """The place of each value was a text of its own: below a long name, a body of 200 kB took gigabytes."""
    body = json.dumps({"k" * 10_000: [0] * 20_000, "pair": "\U0001f600"}).encode()
    tracemalloc.start()
    try:
        loads(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(body)
