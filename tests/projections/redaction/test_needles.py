"""The cost of learning a value: it stays small whatever the value consists of, because clients choose some of them."""

from __future__ import annotations

import json
import random
import string
import sys
from collections import Counter

import pytest

from ambient_runner.projections.redaction.needles import build_needles

SYMBOLS = "\"'\\/&<>%~é$ aB3"
MAX_CALLS = 200_000
MAX_NEEDLES = 1_500


def random_text(length: int, alphabet: str = SYMBOLS) -> str:
    return "".join(random.Random(2).choices(alphabet, k=length))


VALUES = {
    "60 symbols": random_text(60),
    "96 symbols": random_text(96),
    "512 symbols": random_text(512),
    "4,096 symbols": random_text(4096),
    "8,192 symbols": random_text(8192),
    "8,192 ASCII symbols": random_text(8192, SYMBOLS.replace("é", "")),
    "8,192 ideographs and symbols": random_text(8192, '漢字密鍵/é"'),
    "8,192 letters": random_text(8192, string.ascii_letters),
}


def count_learning(value: str) -> tuple[int, int]:
    """Return the number of functions that are called while the needles of a value are built, those of C included, and the needles."""
    calls = Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        needles = build_needles([value])
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"], len(needles)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_is_learned_in_few_calls_whatever_it_consists_of(value: str) -> None:
    """8,000 symbols had 3,000 forms with a needle for each of their runs: one header stopped the server for 35 s."""
    calls, needles = count_learning(value)
    assert calls < MAX_CALLS
    assert needles < MAX_NEEDLES


def test_the_more_parts_a_credential_has_the_fewer_needles_each_of_them_has() -> None:
    rng = random.Random(2)
    members = {str(number): "".join(rng.choices(SYMBOLS, k=20)) for number in range(150)}
    calls, needles = count_learning(json.dumps(members))
    alone = sum(count_learning(member)[1] for member in members.values())
    assert calls < 2 * MAX_CALLS
    assert needles < alone / 4
