from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from ag_ui.encoder import EventEncoder
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.decode import EventReader
from ambient_runner.protocol.encode import encode_ndjson, encode_sse
from ambient_runner.protocol.events import (
    Event,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    TextMessageContent,
    TextMessageStart,
    encode_event,
)
from ambient_runner.protocol.reserved_events import PlatformEvent

EVENTS: list[Event] = [
    TextMessageStart(message_id="m", role="assistant"),
    TextMessageContent(message_id="m", delta="naïve 🌍 \u2028 line\nbreak \r\n too"),
    RunFinished(thread_id="t", run_id="r"),
]
LINES = [encode_event(event) for event in EVENTS]


def read(*chunks: bytes | str, limit: int = 1 << 20) -> list[Event]:
    reader = EventReader(limit)
    return [*(event for chunk in chunks for event in reader.feed(chunk)), *reader.finish()]


def dropped(kind: str, reason: str) -> PlatformEvent:
    return PlatformEvent(name="ambient:dropped", value={"type": kind, "reason": reason})


FORMS = {
    "sse": encode_sse(LINES, 1, "epoch123"),
    "ndjson": encode_ndjson(LINES),
    "crlf": encode_sse(LINES, 1, "epoch123").replace(b"\n", b"\r\n"),
    "cr": encode_sse(LINES, 1, "epoch123").replace(b"\n", b"\r"),
    "no space": b"".join(b"data:%b\n\n" % line for line in LINES),
    "official encoder": "".join(EventEncoder().encode(to_agui(event)) for event in EVENTS).encode(),
    "comments": b"\xef\xbb\xbf: hello\n\n"
    + b": ping\n\n".join(b"event: x\nretry: 5\ndata: %b\n\n" % line for line in LINES),
    "several data lines": b"".join(
        b"".join(b"data: %b\n" % part for part in json.dumps(json.loads(line), indent=1).encode().split(b"\n")) + b"\n"
        for line in LINES
    ),
    "done marker": encode_sse(LINES, 1, "epoch123") + b"data: [DONE]\n\n",
    "no last line break": encode_sse(LINES, 1, "epoch123").rstrip(b"\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str) -> None:
    assert read(FORMS[form]) == EVENTS


@pytest.mark.parametrize("form", FORMS)
@given(cuts=st.lists(st.integers(0, 400)))
def test_a_stream_may_be_cut_anywhere(form: str, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), None]
    chunks = [FORMS[form][begin:end] for begin, end in pairwise(bounds)]
    assert read(*chunks) == EVENTS


def test_text_is_read_like_bytes() -> None:
    assert read(FORMS["sse"].decode()) == EVENTS


def test_the_newest_id_is_known() -> None:
    reader = EventReader()
    reader.feed(FORMS["sse"])
    assert reader.last_id == "epoch123.3"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"not json", dropped("", "not_json")),
        (b'{"type": "TEXT_MESSAGE_START", "messageId"', dropped("", "not_json")),
        (b"[1, 2]", dropped("", "not_an_event")),
        (b"{}", dropped("", "not_an_event")),
        (b'{"type": "SURPRISE"}', dropped("SURPRISE", "not_an_event")),
        (b'{"type": "TEXT_MESSAGE_START"}', dropped("TEXT_MESSAGE_START", "not_an_event")),
        (b'{"type": "CUSTOM", "name": "x", "value": NaN}', dropped("", "not_json")),
        (b'{"type": "%b"}' % (b"x" * 1000), dropped("x" * 64, "not_an_event")),
        (b"\xff\xfe", dropped("", "not_json")),
        (b"[" * 100, dropped("", "not_json")),
        (b"[" * 100_000, dropped("", "too_deep")),
        (b'{"type":"CUSTOM","name":"x","value":%b%b}' % (b"[" * 128, b"]" * 128), dropped("", "too_deep")),
    ],
)
def test_what_is_not_an_event_is_reported_and_the_rest_is_read(data: bytes, expected: PlatformEvent) -> None:
    assert read(b"data: %b\n\n" % data + FORMS["sse"]) == [expected, *EVENTS]


@pytest.mark.parametrize("text", [b"plain text", b"plain\ntext: of\nlines", b"Hello: you", b'["TEXT"]', b" {"])
def test_text_that_belongs_to_no_event_is_reported_once(text: bytes) -> None:
    assert read(text) == [dropped("", "not_json")]
    assert read(text, b"\n\n", FORMS["sse"]) == [dropped("", "not_json"), *EVENTS]
    assert read(text, b"\n", FORMS["ndjson"], text) == [dropped("", "not_json"), *EVENTS, dropped("", "not_json")]


@pytest.mark.parametrize("cut", [10, 1000, 100_000])
@pytest.mark.parametrize("frame", [b"data: %b\n\n", b"%b\n"])
def test_an_event_that_is_too_large_is_skipped(frame: bytes, cut: int) -> None:
    large = frame % encode_event(TextMessageContent(message_id="m", delta="x" * 50_000))
    stream = large + FORMS["sse"]
    chunks = [stream[at : at + cut] for at in range(0, len(stream), cut)]
    assert read(*chunks, limit=10_000) == [dropped("", "too_large"), *EVENTS]


def test_many_lines_of_one_event_are_too_large_together() -> None:
    assert read(b"data: 1\n" * 5000 + b"\n" + FORMS["sse"], limit=5000) == [dropped("", "too_large"), *EVENTS]


def test_an_event_that_is_too_large_is_not_buffered() -> None:
    reader = EventReader(1000)
    for _ in range(1000):
        reader.feed(b"data: " + b"x" * 1000)
    held: dict[str, Any] = vars(reader)
    assert sum(map(len, (*held["_partial_line"], *held["_data"]))) < 3000


def test_an_older_protocol_is_decoded() -> None:
    old = [
        {"type": "THINKING_START"},
        {"type": "THINKING_TEXT_MESSAGE_START"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": None},
    ]
    kinds = [type(event) for event in read(*(f"data: {json.dumps(members)}\n\n" for members in old))]
    assert kinds == [ReasoningStart, ReasoningMessageStart, RunFinished]
