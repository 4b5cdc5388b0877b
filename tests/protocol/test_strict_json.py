from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol.strict_json import is_too_deep

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
