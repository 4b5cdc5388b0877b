"""The text that is held back depends on the shape of the text alone, and nothing that follows can complete a secret."""

from __future__ import annotations

import base64
import random
import re
import string
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.projections.redaction import HELD_CHARS, REDACTED, Redactor
from ambient_runner.projections.redaction.held_deltas import HeldDeltas
from ambient_runner.projections.redaction.secrets import Secrets
from ambient_runner.protocol.events import (
    ReasoningMessageContent,
    ReasoningMessageEnd,
    TextMessageContent,
    TextMessageEnd,
    ToolCallArgs,
    ToolCallEnd,
)

SECRET = "s3cr3t-Zq8-value"
_RANDOM = random.Random(5)
JWT = ".".join(
    "eyJ" + "".join(_RANDOM.choices(string.ascii_letters + string.digits, k=length)) for length in (40, 9000, 60)
)
PEM_LINES = ["".join(_RANDOM.choices(string.ascii_letters + string.digits, k=64)) for _ in range(30)]


def released(redactor: Redactor, *deltas: str) -> list[str]:
    """Return the texts that may be sent after each delta."""
    out = [redactor.feed(TextMessageContent(message_id="m", delta=delta)) for delta in deltas]
    return [event.delta for events in out for event in events if isinstance(event, TextMessageContent)]


def streamed(redactor: Redactor, *deltas: str) -> list[str]:
    end = redactor.feed
    out = released(redactor, *deltas)
    return out + [event.delta for event in end(TextMessageEnd(message_id="m")) if isinstance(event, TextMessageContent)]


def split(text: str, length: int) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_prefix_of_a_secret_and_a_wrong_guess_leave_at_the_same_moment_in_the_same_pieces(size: int) -> None:
    for length in range(1, len(SECRET)):
        guess = SECRET[:length]
        wrong = guess[:-1] + ("x" if guess[-1] != "x" else "y")
        texts = [f"x {word} and more {word}" for word in (guess, wrong)]
        moments = [
            [released(redactor, part) for part in split(text, size)]
            for text in texts
            for redactor in [Redactor([SECRET])]
        ]
        shapes = [[[len(piece) for piece in pieces] for pieces in moment] for moment in moments]
        assert shapes[0] == shapes[1]
        assert "".join(streamed(Redactor([SECRET]), *split(texts[0], size))) == texts[0]


def test_words_leave_as_they_come() -> None:
    redactor = Redactor([SECRET])
    assert [released(redactor, word) for word in ("Hello", " world", ",", " how", " are you", " to", "day?", " ")] == [
        [],
        ["Hello"],
        [" world", ","],
        [],
        [" how", " are "],
        ["you "],
        [],
        ["today?", " "],
    ]


def test_the_part_of_a_delta_before_its_last_word_leaves_at_once_and_the_word_with_the_next_delta() -> None:
    redactor = Redactor([SECRET])
    assert [released(redactor, delta) for delta in ("One moment please", ". Searching the", " web")] == [
        ["One moment "],
        ["please. Searching "],
        ["the "],
    ]
    assert streamed(redactor) == ["web"]


def test_words_do_not_move_to_a_delta_with_other_metadata() -> None:
    redactor, summary = Redactor([SECRET]), {"summary": True}
    deltas = [
        ReasoningMessageContent(message_id="m", delta="Counting the rows", metadata=summary),
        ReasoningMessageContent(message_id="m", delta=" of it", metadata=summary),
        ReasoningMessageContent(message_id="m", delta=" a thought", metadata=None),
        ReasoningMessageEnd(message_id="m"),
    ]
    out = [event for delta in deltas for event in redactor.feed(delta)]
    assert [(event.delta, event.metadata) for event in out if isinstance(event, ReasoningMessageContent)] == [
        ("Counting the ", summary),
        ("rows of ", summary),
        ("it", summary),
        (" a ", None),
        ("thought", None),
    ]


def test_no_more_than_the_window_is_held() -> None:
    text = "a1B2" * 5000
    out = [len("".join(released(redactor, part))) for redactor in [Redactor([SECRET])] for part in split(text, 50)]
    steps = [length for length in out if length]
    assert [0 <= length - HELD_CHARS < 50 for length in steps] == [True] * ((len(text) - HELD_CHARS) // HELD_CHARS)


@pytest.mark.parametrize("size", [1, 8])
def test_a_long_run_is_searched_once_for_each_window_whatever_its_deltas_are(size: int) -> None:
    """Each delta searched all that was held: 1 MB of base64 in the arguments of a call took 23 s in deltas of 8, 548 s in deltas of 1."""
    text = "".join(random.Random(4).choices(string.ascii_letters + string.digits + "+/", k=10 * HELD_CHARS))
    deltas = [ToolCallArgs(tool_call_id="c", delta=part) for part in split(text, size)]
    redactor, calls = Redactor([SECRET]), Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update((frame.f_code.co_qualname,) if event == "call" else ()))
    try:
        out = [event for delta in deltas for event in redactor.feed(delta)]
        out += redactor.feed(ToolCallEnd(tool_call_id="c"))
    finally:
        sys.setprofile(None)
    assert "".join(event.delta for event in out if isinstance(event, ToolCallArgs)) == text
    assert calls["Secrets.find_spans"] == 10
    assert calls["HeldDeltas._take_until"] < 10


@pytest.mark.parametrize("size", [1, 7, 64, 5000, 20_000])
def test_a_token_longer_than_the_window_is_replaced_to_its_end(size: int) -> None:
    assert "".join(streamed(Redactor([]), *split(f"token {JWT} ok", size))) == f"token {REDACTED} ok"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\\n", "\\\\n"])
@pytest.mark.parametrize("size", [1, 13, 200, 10_000])
def test_the_lines_of_a_private_key_are_replaced_however_they_come(size: int, line_break: str) -> None:
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    text = f"here: {line_break.join([begin, *PEM_LINES, 'aB3==', end])} - done"
    out = "".join(streamed(Redactor([]), *split(text, size)))
    assert out.replace(f"{begin}{line_break}", begin) == f"here: {begin}{REDACTED}{line_break}{end} - done"


@pytest.mark.parametrize("size", [1, 4, 5, 30, 10_000])
@pytest.mark.parametrize(
    "prefix",
    [
        "{:6}\t",
        "{:6}→",
        "certs/server.key:{}:",
        "-",
        "+",
        "> ",
        "a1b2c3d4 (Ann 2026-01-01 10:00:00 +0000 {}) ",
        "web-1  | ",
    ],
)
def test_the_lines_of_a_private_key_are_replaced_behind_any_prefix(size: int, prefix: str) -> None:
    lines = ["-----BEGIN PRIVATE KEY-----", *PEM_LINES, PEM_LINES[0][:20], "-----END PRIVATE KEY-----"]
    text = "\n".join(prefix.format(number) + line for number, line in enumerate(lines, 1))
    out = "".join(streamed(Redactor([]), *split(f"{text}\nThat is the internationalization.", size)))
    assert [line for line in (*PEM_LINES, PEM_LINES[0][:20]) if line[:8] in out or line[-8:] in out] == []
    assert out.endswith("-----END PRIVATE KEY-----\nThat is the internationalization.")


@pytest.mark.parametrize("size", [1, 4, 6, 12, 40, 10_000])
@pytest.mark.parametrize("prose", ["\n\nThese are the first two\nlines of the key", "\nThese two and no more\nDone\n"])
def test_text_after_a_private_key_without_an_end_stays_however_it_comes(size: int, prose: str) -> None:
    begin = "-----BEGIN PRIVATE KEY-----"
    text = "\n".join([begin, *PEM_LINES[:2]]) + prose
    out = "".join(streamed(Redactor([]), *split(text, size)))
    assert out.replace(f"{begin}\n", begin) == f"{begin}{REDACTED}{prose[1:]}"


@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
@pytest.mark.parametrize("columns", [76, 100_000])
def test_a_private_key_in_base64_is_replaced_to_its_end(size: int, columns: int) -> None:
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *PEM_LINES, *PEM_LINES, *PEM_LINES, "-----END PRIVATE KEY-----\n"])
    encoded = base64.b64encode(key.encode()).decode()
    lines = "\n    ".join(split(encoded, columns))
    out = "".join(streamed(Redactor([]), *split(f"  tls.key: {lines}\n  name: tls", size)))
    assert re.sub(r"\s", "", out) == f"tls.key:{REDACTED}name:tls"


def test_text_about_private_keys_stays() -> None:
    text = "A key starts with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY----- always."
    assert "".join(streamed(Redactor([]), *split(text, 4))) == text


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_the_token_of_a_header_is_replaced_although_its_name_was_sent(size: int) -> None:
    text = 'curl -H "Authorization: Bearer tG7xW2pQ9vLk4Rm8" https://example.com'
    expected = f'curl -H "Authorization: Bearer {REDACTED}" https://example.com'
    assert "".join(streamed(Redactor([]), *split(text, size))) == expected


def test_arguments_of_a_call_are_held_like_text() -> None:
    redactor = Redactor([SECRET])
    deltas = [ToolCallArgs(tool_call_id="c", delta=delta) for delta in ('{"key": "', SECRET[:9], SECRET[9:], '"}')]
    out = [event for delta in deltas for event in redactor.feed(delta)]
    out += redactor.feed(ToolCallEnd(tool_call_id="c"))
    assert "".join(event.delta for event in out if isinstance(event, ToolCallArgs)) == f'{{"key": "{REDACTED}"}}'


class _AlwaysDividing(HeldDeltas[TextMessageContent]):
    """Feeds a single delta as several are fed."""

    def _try_release_whole(self, text: str, secrets: Secrets) -> bool:
        return False


TEXTS = st.sampled_from(
    [
        *("a ", "a", " b", "\n", ". ", "x" * 300, "Bearer ", "-----BEGIN PRIVATE KEY-----\n"),
        *(SECRET, f"{SECRET} ", "s3cr3t-", "Zq8-value "),
        *("correct ", "horse ", "battery ", "staple ", "correct horse ", "staple"),
    ]
)


@given(texts=st.lists(TEXTS, max_size=30))
def test_a_delta_that_is_released_at_once_is_the_same_as_on_the_plain_path(texts: list[str]) -> None:
    secrets = Secrets([SECRET, "correct horse battery staple"])
    direct, plain = HeldDeltas[TextMessageContent](), _AlwaysDividing()
    for text in texts:
        delta = TextMessageContent(message_id="m", delta=text)
        assert direct.feed([delta], secrets) == plain.feed([delta], secrets)
    assert direct.flush(secrets) == plain.flush(secrets)
    assert direct.replacement_count == plain.replacement_count
