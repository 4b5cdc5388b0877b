"""SSE and NDJSON framing of encoded events, cursors, and content negotiation between the two formats.

A line is one encoded event without a newline, as `events.encode_event` returns it. Framing is LF only: the official client
splits on nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from ambient_runner.errors import InvalidCursor
from ambient_runner.protocol.events import type_of_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "PING",
    "Cursor",
    "encode_ndjson",
    "encode_sse",
    "encode_sse_without_id",
    "format_cursor",
    "negotiate_format",
    "parse_cursor",
]

PING = b": ping\n\n"

_CURSOR = re.compile(r"([A-Za-z0-9_-]{8,32})\.(0|[1-9][0-9]{0,14})")
_QUALITY = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?")
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})


class Cursor(NamedTuple):
    """A position in one epoch of a thread."""

    epoch: str
    seq: int


def format_cursor(epoch: str, seq: int) -> str:
    return f"{epoch}.{seq}"


def parse_cursor(text: str) -> Cursor:
    """Return the cursor a client sent. Raises: InvalidCursor if it does not have the format of `format_cursor`."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidCursor
    return Cursor(found[1], int(found[2]))


def encode_sse(lines: Sequence[bytes], first: int, epoch: str, event_lines: bool = False) -> bytes:
    """Return the frames of consecutive entries, each with its cursor as `id`, joined.

    The bytes between an epoch and a line are the same for every thread, so they are cached, and the rest is one `join`.
    """
    if len(lines) == 1 and not event_lines:
        return b"id: %b.%d\ndata: %b\n\n" % (epoch.encode(), first, lines[0])
    if not lines:
        return b""
    id_prefix = b"id: " + epoch.encode()
    if event_lines:
        separators = [
            b".%d\nevent: %b\ndata: " % (seq, type_of_line(line).encode()) for seq, line in enumerate(lines, first)
        ]
    else:
        separators = _frame_separators(first, len(lines))
    return id_prefix + (b"\n\n" + id_prefix).join(map(bytes.__add__, separators, lines)) + b"\n\n"


_SEPARATORS: list[bytes] = []
"""Bytes between the epoch and the line of a frame, by seq. Grows with the longest thread so far, to about 4 MB at most."""
_MAX_SEPARATORS = 1 << 16


def _frame_separators(first: int, count: int) -> Sequence[bytes]:
    end = first + count
    if end > _MAX_SEPARATORS:
        return [b".%d\ndata: " % seq for seq in range(first, end)]
    if end > len(_SEPARATORS):
        _SEPARATORS.extend([b".%d\ndata: " % seq for seq in range(len(_SEPARATORS), end)])
    return _SEPARATORS[first:end]


def encode_sse_without_id(line: bytes, event_lines: bool = False) -> bytes:
    """Return a frame without an `id`: made for one reader, and not part of the exactly-once delivery."""
    if event_lines:
        return b"event: %b\ndata: %b\n\n" % (type_of_line(line).encode(), line)
    return b"data: %b\n\n" % line


def encode_ndjson(lines: Iterable[bytes]) -> bytes:
    """Return the events, one per line."""
    return b"".join([b"%b\n" % line for line in lines])


def negotiate_format(accept: str | None) -> Literal["sse", "ndjson"]:
    """Return the response format: NDJSON only if the Accept header names it and prefers it to SSE.

    A client that names NDJSON and accepts anything else equally (`*/*`) gets NDJSON; one that names both equally gets SSE.
    """
    qualities = dict(_media_ranges(accept or ""))
    ndjson_quality = max((quality for name, quality in qualities.items() if name in _NDJSON), default=0.0)
    if "text/event-stream" in qualities:
        return "ndjson" if ndjson_quality > qualities["text/event-stream"] else "sse"
    other_quality = max(qualities.get("text/*", 0.0), qualities.get("*/*", 0.0))
    return "ndjson" if ndjson_quality > 0 and ndjson_quality >= other_quality else "sse"


def _media_ranges(accept: str) -> Iterable[tuple[str, float]]:
    """Yield the names and qualities of an Accept header. A quality that is not a number from 0 to 1 counts as 0."""
    for entry in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in entry.split(";"))
        qualities = [parameter[2:].strip() for parameter in parameters if parameter.startswith("q=")]
        yield name, _parse_quality(qualities[0]) if qualities else 1.0


def _parse_quality(text: str) -> float:
    return float(text) if _QUALITY.fullmatch(text) else 0.0
