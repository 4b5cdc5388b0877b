"""Bytes on the wire: SSE and NDJSON frames of encoded events, cursors, and which of the two forms a client asked for.

A line is one encoded event without a newline, as `events.encode_event` makes it. Framing is LF only: the official client
splits on nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from ambient_runner.errors import InvalidCursor
from ambient_runner.protocol.events import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PING", "Cursor", "format_cursor", "ndjson", "negotiate", "parse_cursor", "sse", "sse_bare"]

PING = b": ping\n\n"

_CURSOR = re.compile(r"([A-Za-z0-9_-]{8,32})\.(0|[1-9][0-9]{0,14})")
_QUALITY = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?")
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})


class Cursor(NamedTuple):
    """A place in one life of a thread."""

    epoch: str
    seq: int


def format_cursor(epoch: str, seq: int) -> str:
    return f"{epoch}.{seq}"


def parse_cursor(text: str) -> Cursor:
    """The place a client names. Raises: InvalidCursor when it is not written as `format_cursor` writes it."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidCursor
    return Cursor(found[1], int(found[2]))


def sse(lines: Sequence[bytes], first: int, epoch: str, event_lines: bool = False) -> bytes:
    """Frames for consecutive entries, each with its cursor as `id`, in one piece.

    What stands between an epoch and a line is the same for every thread, so it is kept, and the rest is one `join`.
    """
    if len(lines) == 1 and not event_lines:
        return b"id: %b.%d\ndata: %b\n\n" % (epoch.encode(), first, lines[0])
    if not lines:
        return b""
    opening = b"id: " + epoch.encode()
    if event_lines:
        between = [b".%d\nevent: %b\ndata: " % (seq, kind_of(line).encode()) for seq, line in enumerate(lines, first)]
    else:
        between = _numbered(first, len(lines))
    return opening + (b"\n\n" + opening).join(map(bytes.__add__, between, lines)) + b"\n\n"


_NUMBERED: list[bytes] = []
"""What stands between an epoch and a line, by seq: as many as the longest thread so far has had, some 4 MB at most."""
_MOST_NUMBERED = 1 << 16


def _numbered(first: int, count: int) -> Sequence[bytes]:
    end = first + count
    if end > _MOST_NUMBERED:
        return [b".%d\ndata: " % seq for seq in range(first, end)]
    if end > len(_NUMBERED):
        _NUMBERED.extend([b".%d\ndata: " % seq for seq in range(len(_NUMBERED), end)])
    return _NUMBERED[first:end]


def sse_bare(line: bytes, event_lines: bool = False) -> bytes:
    """A frame without an `id`: it was made for this reader and is not part of what is delivered exactly once."""
    if event_lines:
        return b"event: %b\ndata: %b\n\n" % (kind_of(line).encode(), line)
    return b"data: %b\n\n" % line


def ndjson(lines: Iterable[bytes]) -> bytes:
    """One event per line."""
    return b"".join([b"%b\n" % line for line in lines])


def negotiate(accept: str | None) -> Literal["sse", "ndjson"]:
    """The form to answer in: NDJSON only for a client that names it and prefers it to SSE.

    A client that names NDJSON and takes anything else equally (`*/*`) gets it; one that names both equally gets SSE.
    """
    qualities = dict(_media_ranges(accept or ""))
    asked = max((quality for name, quality in qualities.items() if name in _NDJSON), default=0.0)
    if "text/event-stream" in qualities:
        return "ndjson" if asked > qualities["text/event-stream"] else "sse"
    anything = max(qualities.get("text/*", 0.0), qualities.get("*/*", 0.0))
    return "ndjson" if asked > 0 and asked >= anything else "sse"


def _media_ranges(accept: str) -> Iterable[tuple[str, float]]:
    """Names and qualities of an Accept header. One whose quality is not a number from 0 to 1 counts as not accepted."""
    for entry in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in entry.split(";"))
        given = [parameter[2:].strip() for parameter in parameters if parameter.startswith("q=")]
        yield name, _quality(given[0]) if given else 1.0


def _quality(text: str) -> float:
    return float(text) if _QUALITY.fullmatch(text) else 0.0
