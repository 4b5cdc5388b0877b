"""JSON pointers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol.json_pointer import format_pointer, parse_pointer


@pytest.mark.parametrize(
    ("keys", "pointer"),
    [([], ""), ([""], "/"), (["a", "0"], "/a/0"), (["a/b", "m~n"], "/a~1b/m~0n"), (["~1"], "/~01")],
)
def test_a_pointer_names_keys_and_keys_make_a_pointer(keys: list[str], pointer: str) -> None:
    assert format_pointer(*keys) == pointer
    assert parse_pointer(pointer) == keys


@given(st.lists(st.text("~/01a")))
def test_whatever_a_key_holds_it_comes_back(keys: list[str]) -> None:
    assert parse_pointer(format_pointer(*keys)) == keys
