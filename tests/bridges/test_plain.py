"""What a framework hands over, as plain JSON; and text as what it says."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from ambient_runner.bridges.plain import json_or_text, plain


class Secretive:
    def __repr__(self) -> str:
        return "sk-live-0123456789"

    __str__ = __repr__


def test_what_json_has_no_form_for_is_the_nearest_thing_and_never_its_own_text() -> None:
    given = {"when": datetime(2026, 1, 2, tzinfo=UTC), "data": b"hi", "far": math.inf, "key": [Secretive(), (1, 2)]}
    assert plain(given) == {
        "when": "2026-01-02T00:00:00Z",
        "data": "aGk=",
        "far": None,
        "key": ["<Secretive>", [1, 2]],
    }


def test_the_copy_shares_nothing_with_what_was_given() -> None:
    given: dict[str, Any] = {"list": [1]}
    copy = plain(given)
    given["list"].append(2)
    assert copy == {"list": [1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 1}', {"a": 1}), ("3", 3), ("three", "three"), ("", ""), ("[" * 100_000, "[" * 100_000)],
    ids=["object", "number", "words", "nothing", "too deep"],
)
def test_text_is_what_it_says_if_it_is_json(text: str, said: Any) -> None:
    assert json_or_text(text) == said
