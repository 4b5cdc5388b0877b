"""The positions that the search finds, and its cost: a text of credentials, of their beginnings or of pieces of a value stays cheap."""

from __future__ import annotations

import base64
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.config import SECRET_PATTERNS
from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets

KEY = "AKIAB3DE5GH7B3DE5GH7"
SIZE = 100_000
MAX_CALLS = 2.5  # Per character.


def random_text(seed: int, length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=length))


LONG = random_text(1, 4000)
LINES = [random_text(line, 64) for line in range(40)]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *LINES, "-----END PRIVATE KEY-----"])
BEGINNINGS = [literal for pattern in SECRET_PATTERNS for literal in pattern.literals]


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


FLOODS = {
    "sk-ant- in hex": b"sk-ant-".hex(),
    "AKIA in hex": b"AKIA".hex(),
    "eyJ in hex": b"eyJ".hex(),
    "all in hex": "".join(literal.encode().hex() for literal in BEGINNINGS),
    "sk- in base64": encode_base64("sk-"),
    "sk- in base64, spaced": encode_base64("sk-") + " ",
    "all in base64": encode_base64("".join(BEGINNINGS)),
    "all": "".join(BEGINNINGS),
    "all, spaced": " ".join([*BEGINNINGS, ""]),
    "keys": f"{KEY} ",
    "keys in hex": f"{KEY} ".encode().hex(),
    "keys in base64, spaced": encode_base64(KEY) + " ",
    "URLs with passwords": "://a:b3dE5gH7x@h ",
    "headers": "Authorization: Bearer aB3dE5gH7jK9mN ",
    "a piece of a value": LONG[256:288],
    "half a line of a key": LINES[3][:32],
    "a line of a key": LINES[3],
}


VALUE = "pässwört-日本-Q7"


@given(st.lists(st.sampled_from([VALUE, VALUE[:9], "a b ", "é", "日本", "🌊", "\ud83d", "\x00", "p"]), max_size=30))
def test_values_are_found_at_their_characters_whatever_else_the_text_has(parts: list[str]) -> None:
    text = "".join(parts)
    spans = Secrets([VALUE], patterns=()).find_spans(text)
    assert sorted(start for start, _, _ in spans) == [found.start() for found in re.finditer(VALUE, text)]
    assert {text[start:stop] for start, stop, _ in spans} <= {VALUE}


def count_calls(text: str, values: Sequence[str] = (LONG, PEM)) -> int:
    """Return the number of functions that are called while a text is redacted, those of C included."""
    redactor, calls = Redactor(Secrets(values)), Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        redactor.redact_text(text)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


@pytest.mark.parametrize("word", FLOODS.values(), ids=FLOODS)
def test_a_text_of_credentials_or_their_beginnings_costs_few_calls_per_character(word: str) -> None:
    """Each beginning was decoded, and each credential was estimated: 8 MB took 20 s of the event loop."""
    assert count_calls(word * (SIZE // len(word))) < MAX_CALLS * SIZE


NESTED = {"periodic": "a9X" * 21, "random": random_text(9, 63)}
"""Values of which every beginning is a value too."""


@pytest.mark.parametrize("longest", NESTED.values(), ids=NESTED)
def test_values_that_begin_each_other_are_found_to_their_ends(longest: str) -> None:
    values = [longest[:length] for length in range(8, len(longest) + 1)]
    redactor = Redactor(Secrets(values))
    texts = [form for value in values for form in (value, value.encode().hex(), f"{value}, and {values[3]}")]
    expected = [REDACTED, REDACTED, f"{REDACTED}, and {REDACTED}"] * len(values)
    assert [redactor.redact_text(text) for text in texts] == expected


@pytest.mark.parametrize("longest", NESTED.values(), ids=NESTED)
def test_a_text_of_values_that_begin_each_other_costs_few_calls_per_character(longest: str) -> None:
    """All of them ended at every position of the text: 1 MB took 28 s."""
    values = [longest[:length] for length in range(8, len(longest) + 1)]
    for text in (longest, longest[:30] + " "):
        assert count_calls(text * (SIZE // len(text)), values) < 32 * SIZE


def test_a_text_of_different_credentials_is_replaced_and_few_of_them_are_checked() -> None:
    keys = ["AKIA" + random_text(key, 16, string.ascii_uppercase + string.digits) for key in range(4000)]
    text = " ".join(keys)
    assert Redactor(Secrets(())).redact_text(text) == " ".join([REDACTED] * len(keys))
    assert count_calls(text) < MAX_CALLS * len(text)


def test_a_long_credential_in_base64_is_found_to_its_end_among_other_beginnings() -> None:
    token = f"sk-ant-{random_text(2, 3000)} sk-ant-{random_text(3, 200)} sk-ant-"
    redacted = Redactor(Secrets(())).redact_text(encode_base64(token))
    kept = redacted.split(REDACTED)
    assert len(kept) == 3
    assert len("".join(kept)) < len(encode_base64("sk-ant- ")) + 8
