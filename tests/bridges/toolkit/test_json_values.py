"""What a framework hands over, as plain JSON; and text as what it says."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ambient_runner.bridges.toolkit.json_values import (
    parse_json_or_text,
    to_json_text,
    to_jsonable,
    to_jsonable_or_type_name,
)


class Secretive:
    def __repr__(self) -> str:
        return "sk-live-0123456789"

    __str__ = __repr__


@pytest.mark.parametrize(
    "copied", [to_jsonable, lambda given: json.loads(to_json_text(given))], ids=["plain", "to_json_text"]
)
def test_what_json_has_no_form_for_is_the_nearest_thing_and_never_its_own_text(copied: Callable[[Any], Any]) -> None:
    given = {
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "data": [b"hi", b"\xff"],
        "far": [math.inf, math.nan],
        "key": [Secretive(), (1, 2)],
        Secretive(): 1,
    }
    assert copied(given) == {
        "when": "2026-01-02T00:00:00Z",
        "data": ["aGk=", "_w=="],
        "far": [None, None],
        "key": ["<Secretive>", [1, 2]],
        "<Secretive>": 1,
    }


def test_json_text_is_compact_and_keeps_letters_as_they_are() -> None:
    assert to_json_text({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'


@pytest.mark.parametrize(
    ("given", "text"),
    [("a\ud800", '"a?"'), ({"k\udfff": (1, ["\ud800"]), "b": {"ü"}}, '{"k?":[1,["?"]],"b":["ü"]}')],
    ids=["text", "everywhere"],
)
def test_a_lone_surrogate_is_replaced_in_json_text(given: Any, text: str) -> None:
    assert to_json_text(given) == text


def test_a_cyclic_value_is_replaced_by_its_type_name_or_refused() -> None:
    given: dict[str, Any] = {}
    given["me"] = [given]
    assert to_jsonable_or_type_name(given) == "<dict>"
    assert to_jsonable_or_type_name({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="Circular"):
        to_json_text(given)


def test_the_copy_shares_nothing_with_the_original() -> None:
    given: dict[str, Any] = {"list": [1]}
    copy = to_jsonable(given)
    given["list"].append(2)
    assert copy == {"list": [1]}


DEEP = "[" * 129 + "]" * 129


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 1}', {"a": 1}), ("3", 3), ("three", "three"), ("", ""), (DEEP, DEEP), ("[" * 100_000, "[" * 100_000)],
    ids=["object", "number", "words", "nothing", "too deep", "brackets"],
)
def test_json_text_is_parsed(text: str, said: Any) -> None:
    assert parse_json_or_text(text) == said
