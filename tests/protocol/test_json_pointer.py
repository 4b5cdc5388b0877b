"""JSON pointers."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol.json_pointer import format_pointer, is_pointer, parse_pointer


@pytest.mark.parametrize(
    ("keys", "pointer"),
    [([], ""), ([""], "/"), (["a", "0"], "/a/0"), (["a/b", "m~n"], "/a~1b/m~0n"), (["~1"], "/~01")],
)
def test_a_pointer_names_keys_and_keys_make_a_pointer(keys: list[str], pointer: str) -> None:
    assert format_pointer(*keys) == pointer
    assert parse_pointer(pointer) == keys


@given(st.lists(st.text("~/01a")))
def test_whatever_a_key_holds_it_comes_back(keys: list[str]) -> None:
    pointer = format_pointer(*keys)
    assert is_pointer(pointer)
    assert parse_pointer(pointer) == keys


@pytest.mark.parametrize("text", ["a", "a/b", "~", "/~", "/~2", "/a~", "/~0~", "/~~0"])
def test_a_text_without_a_slash_first_or_with_another_escape_is_no_pointer(text: str) -> None:
    assert not is_pointer(text)


@pytest.mark.parametrize("key", ["", "a", "aaaaaaaa", "~0"])
def test_a_long_pointer_is_checked_without_memory_for_each_key(key: str) -> None:
    """An expression that matched all keys took gigabytes for a path of megabytes, and held up all threads meanwhile."""
    pointer = f"/{key}" * 100_000
    tracemalloc.start()
    try:
        assert is_pointer(pointer)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
