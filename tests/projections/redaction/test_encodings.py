"""A known value is found however it is encoded, and nothing around it is changed."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from ambient_runner.projections.redaction import REDACTED, Redactor
from ambient_runner.protocol.events import StateDelta

VALUE = "wJalrXUtnFEMI/K7MDENG+bPxRfi~C%Y=9Zq"
SPACED = "correct-horse9 battery-staple7 x8Kq2mVz"
WORDS = "grüße-an-alle-42-Zebras"


def dumps(value: str) -> str:
    return json.dumps(value)[1:-1]


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": dumps,
    "json in json": lambda value: dumps(dumps(value)),
    "json in json in json": lambda value: dumps(dumps(dumps(value))),
    "json in json in json, in arguments": lambda value: dumps(dumps(dumps(dumps(value)))),
    "json with escaped slashes": lambda value: dumps(value).replace("/", "\\/"),
    "json pointer": lambda value: value.replace("~", "~0").replace("/", "~1"),
    "url": lambda value: quote(value, safe=""),
    "url in lower case": lambda value: re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(value, safe="")),
    "form": quote_plus,
    "path": quote,
    "encodeURIComponent": lambda value: quote(value, safe="!'()*"),
    "base64": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64url": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "hex": lambda value: value.encode().hex(),
    "upper case hex": lambda value: value.encode().hex().upper(),
    "repr": lambda value: repr(value)[1:-1],
}


LONG = "".join(random.Random(1).choices(string.ascii_letters + "/~%+ <'\"", k=900)).strip()


@pytest.mark.parametrize("value", [VALUE, SPACED, WORDS, LONG], ids=["symbols", "spaces", "umlauts", "long"])
@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_a_value_is_found_in_every_encoding(encode: Callable[[str], str], value: str) -> None:
    encoded = encode(value)
    redacted = Redactor([value]).redact_text(f"<{encoded}>")
    assert redacted.startswith(f"<{REDACTED}")
    assert len(redacted) <= len(f"<{REDACTED}>") + 1  # The last character of base64 belongs to the value only in part.


@pytest.mark.parametrize("url_safe", [False, True])
@pytest.mark.parametrize("before", range(6))
def test_a_value_inside_longer_base64_is_found_at_every_alignment(before: int, url_safe: bool) -> None:
    data = b"\x00" * before + VALUE.encode() + b"\xff" * 7
    encoded = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()
    redacted = Redactor([VALUE]).redact_text(encoded)
    kept = redacted.split(REDACTED)
    assert len(kept) == 2
    assert encoded.startswith(kept[0])
    assert encoded.endswith(kept[1])


def test_a_value_in_a_json_pointer_is_found_in_the_path_of_a_state_delta() -> None:
    event = StateDelta(
        delta=[{"op": "add", "path": "/keys/" + VALUE.replace("~", "~0").replace("/", "~1"), "value": 1}]
    )
    assert Redactor([VALUE]).feed(event) == (
        StateDelta(delta=[{"op": "add", "path": f"/keys/{REDACTED}", "value": 1}]),
    )


def test_base64_of_an_image_without_the_value_stays_as_it_is() -> None:
    image = base64.b64encode(bytes(range(256)) * 200).decode()
    assert Redactor([VALUE, SPACED]).redact_text(image) == image
