"""Credentials of a known shape inside base64 and hex, also in a text that consists of their beginnings."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets

KEY = "AKIAB3DE5GH7B3DE5GH7"


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("encode", [encode_base64, bytes.hex], ids=["base64", "hex"])
def test_a_key_is_found_among_many_beginnings_of_keys(encode: Callable[[bytes], str], before: int) -> None:
    beginnings = " ".join([encode(b"x" * before + b"AKIA")] * 200)
    encoded = encode(b"." * before + KEY.encode() + b".")
    redacted = Redactor(Secrets(())).redact_text(f"{beginnings} {encoded} {beginnings}")
    assert redacted.count(REDACTED) == 1
    assert encode(KEY.encode()[3:15])[2:-4] not in redacted
    assert redacted.startswith(beginnings)
    assert redacted.endswith(beginnings)
