"""Base64 in lines: what a line break divides is found, and nothing else is changed."""

from __future__ import annotations

import base64
import random
import re
import string

import pytest

from ambient_runner.projections.redaction import REDACTED, Redactor, Secrets
from ambient_runner.protocol.events import Custom

KNOWN = "9fK2qLw7-xYzT5bR8mN3vB"
PATTERN = "ghp_aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7"
BREAKS = ["\n", "\r\n", "\\n", "\\r\\n", "\\\\n"]


def wrapped_base64(secret: str, before: int, columns: int, line_break: str) -> str:
    noise = random.Random(before).randbytes(400)
    encoded = base64.b64encode(noise[:before] + b" " + secret.encode() + b" " + noise[before:]).decode()
    return line_break.join(re.findall(f".{{1,{columns}}}", encoded))


def without_breaks(text: str) -> str:
    return re.sub(r"\s|\\+[rn]", "", text)


@pytest.mark.parametrize("secret", [KNOWN, PATTERN])
@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("line_break", BREAKS)
def test_a_secret_that_a_line_break_divides_is_found_at_every_column(
    secret: str, columns: int, line_break: str
) -> None:
    redactor = Redactor(Secrets([KNOWN]))
    for before in range(columns):
        text = wrapped_base64(secret, before, columns, line_break)
        whole = base64.b64encode(base64.b64decode(without_breaks(text))[:before] + b" " + secret.encode()).decode()
        redacted = redactor.redact_text(f"Content:\n\n{text}\n--end")
        assert redacted.count(REDACTED) == 1
        kept = redacted.split(REDACTED)
        assert f"Content:\n\n{text}\n--end".startswith(kept[0])
        assert f"Content:\n\n{text}\n--end".endswith(kept[1])
        assert len(without_breaks(kept[0]).removeprefix("Content:")) <= len(whole) - len(secret) * 4 // 3 + 4


def test_a_divided_secret_is_found_in_an_event() -> None:
    text = wrapped_base64(KNOWN, 40, 64, "\n")
    event = Custom(name="mail", value={"body": text})
    (redacted,) = Redactor(Secrets([KNOWN])).feed(event)
    assert redacted == Custom(name="mail", value={"body": Redactor(Secrets([KNOWN])).redact_text(text)})
    assert redacted != event


def test_wrapped_lines_without_a_secret_and_lists_of_keys_keep_their_line_breaks() -> None:
    rng = random.Random(1)
    image = "\n".join("".join(rng.choices(string.ascii_letters + string.digits, k=76)) for _ in range(200))
    redactor = Redactor(Secrets([KNOWN]))
    assert redactor.redact_text(image) == image
    assert redactor.redact_text(f"{PATTERN}\n{PATTERN}\n") == f"{REDACTED}\n{REDACTED}\n"
