"""Bytes on the wire, cursors and content negotiation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidCursor
from ambient_runner.protocol.encode import (
    PING,
    Cursor,
    encode_ndjson,
    encode_sse,
    encode_sse_without_id,
    format_cursor,
    negotiate_format,
    parse_cursor,
)
from ambient_runner.protocol.events import TextMessageContent, TextMessageEnd, encode_event

EPOCH = "Ab3_-678"
LINES = [
    encode_event(TextMessageContent(message_id="m", delta="50% {x} é\n")),
    encode_event(TextMessageEnd(message_id="m")),
]


def test_every_entry_is_a_frame_with_its_cursor() -> None:
    assert encode_sse(LINES, 9, EPOCH) == b"id: Ab3_-678.9\ndata: %b\n\nid: Ab3_-678.10\ndata: %b\n\n" % tuple(LINES)


def test_event_lines_name_the_type() -> None:
    assert encode_sse(LINES, 9, EPOCH, event_lines=True) == (
        b"id: Ab3_-678.9\nevent: TEXT_MESSAGE_CONTENT\ndata: %b\n\nid: Ab3_-678.10\nevent: TEXT_MESSAGE_END\ndata: %b\n\n"
        % tuple(LINES)
    )


def test_no_entries_are_no_bytes() -> None:
    assert (encode_sse([], 1, EPOCH), encode_sse([], 1, EPOCH, event_lines=True), encode_ndjson([])) == (b"", b"", b"")


def test_a_frame_for_one_reader_has_no_id() -> None:
    assert encode_sse_without_id(LINES[1]) == b"data: %b\n\n" % LINES[1]
    assert encode_sse_without_id(LINES[1], event_lines=True) == b"event: TEXT_MESSAGE_END\ndata: %b\n\n" % LINES[1]


def test_ndjson_is_one_event_per_line() -> None:
    assert encode_ndjson(LINES) == LINES[0] + b"\n" + LINES[1] + b"\n"


def test_a_ping_is_a_comment() -> None:
    assert PING == b": ping\n\n"


@given(epoch=st.from_regex(r"[A-Za-z0-9_-]{8,32}", fullmatch=True), seq=st.integers(0, 10**15 - 1))
def test_a_cursor_reads_back(epoch: str, seq: int) -> None:
    assert parse_cursor(format_cursor(epoch, seq)) == Cursor(epoch, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "abcdefgh",
        "abcdefgh.",
        ".7",
        "abcdefg.7",
        f"{'a' * 33}.7",
        "abcdefgh.-7",
        "abcdefgh.+7",
        "abcdefgh.07",
        "abcdefgh.7.7",
        "abcdefgh.1234567890123456",
        "abcdefgh.7\n",
        " abcdefgh.7",
        "abcdéfgh.7",
        "abcdefgh.\u0667",
        "abcdefgh.1e3",
        "abcdefgh.1_000",
        "a" * 100_000,
    ],
)
def test_a_cursor_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        parse_cursor(text)


@given(st.text())
def test_no_text_breaks_the_cursor_parser(text: str) -> None:
    try:
        cursor = parse_cursor(text)
    except InvalidCursor:
        return
    assert format_cursor(*cursor) == text


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "sse"),
        ("", "sse"),
        ("*/*", "sse"),
        ("text/event-stream", "sse"),
        ("application/json", "sse"),
        ("application/vnd.ag-ui.event+proto, */*;q=0.1", "sse"),
        ("application/x-ndjson", "ndjson"),
        ("Application/X-NDJSON; charset=utf-8", "ndjson"),
        ("application/ndjson", "ndjson"),
        ("application/jsonl;q=0.4", "ndjson"),
        ("application/x-ndjson, */*", "ndjson"),
        ("application/x-ndjson;q=0.1, */*", "sse"),
        ("application/x-ndjson;q=0.1, text/*", "sse"),
        ("application/x-ndjson, text/event-stream", "sse"),
        ("application/x-ndjson, text/event-stream;q=0.9", "ndjson"),
        ("text/event-stream; q=0.5 , application/x-ndjson ; q=0.6", "ndjson"),
        ("application/x-ndjson;q=0", "sse"),
        ("application/x-ndjson;q=nan", "sse"),
        ("application/x-ndjson;q=-1", "sse"),
        (";;,,q=;=", "sse"),
    ],
)
def test_sse_is_answered_unless_ndjson_is_named_and_preferred(accept: str | None, form: str) -> None:
    assert negotiate_format(accept) == form


@given(st.text())
def test_no_accept_header_breaks_negotiation(accept: str) -> None:
    assert negotiate_format(accept) in ("sse", "ndjson")
