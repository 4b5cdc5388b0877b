"""Decoding of an AG-UI byte stream from another server or an adapter into events. `encode.py` is the reverse.

Lenient: chunks may be cut anywhere, lines may end in LF, CRLF or CR, SSE and NDJSON may be mixed, and data that is
not an event is replaced by CUSTOM `ambient:dropped`. Nothing is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.dropped_events import dropped_event
from ambient_runner.protocol.events import decode_event
from ambient_runner.protocol.limits import MAX_EVENT_BYTES, MAX_EVENT_DEPTH
from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

__all__ = ["EventReader"]

_BOM = b"\xef\xbb\xbf"
_MAX_FIELD_NAME = 64
_DONE = b"[DONE]"
_IGNORED_FIELDS = frozenset({b"", b"event", b"retry"})
"""SSE fields without AG-UI content. A comment has the empty name."""


class EventReader:
    """Decodes one stream, fed chunk by chunk."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self.last_id = ""
        """Newest `id:` of the stream."""
        self._limit = limit
        self._coerce = EventCoercer()
        self._has_started = False
        self._after_cr = False
        self._partial_line: list[bytes] = []
        self._partial_size = 0
        """Bytes of the incomplete line."""
        self._data: list[bytes] = []
        self._data_size = 0
        """Bytes of the event's complete lines."""
        self._is_too_large = False
        """True if the current event exceeds the limit; the rest of it is skipped."""
        self._has_reported_line = False
        """True if a line that belongs to no event has been reported since the last event."""

    def feed(self, chunk: bytes | str) -> list[Event]:
        """Return the events that this chunk completes."""
        data = self._normalize_newlines(chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk)
        if b"\n" not in data:
            self._buffer_partial_line(data)
            return []
        first, *rest = data.split(b"\n")
        self._buffer_partial_line(first)
        whole = b"".join(self._partial_line)
        self._partial_line.clear()
        self._partial_size = 0
        events: list[Event] = []
        for line in (whole, *rest[:-1]):
            events += self._read_line(line)
        self._buffer_partial_line(rest[-1])
        return events

    def finish(self) -> list[Event]:
        """End the stream. Return the events that were complete except for their last line break."""
        return [*self.feed(b"\n"), *self._read_line(b"")]

    def _normalize_newlines(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _buffer_partial_line(self, data: bytes) -> None:
        """Buffer the beginning of a line, unless the event is already too large."""
        self._partial_size += len(data)
        if self._partial_size > self._limit + _MAX_FIELD_NAME:
            self._is_too_large = True
            self._partial_line[1:] = []
        elif data:
            self._partial_line.append(data)

    def _read_line(self, line: bytes) -> list[Event]:
        """Return the events that a complete line completes."""
        if not self._has_started:
            self._has_started = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch_event()
        if line[:1] == b"{":
            self._buffer_data(line)
            return self._dispatch_event()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._buffer_data(value)
        elif name == b"id":
            self.last_id = value.decode("utf-8", "replace")
        elif name not in _IGNORED_FIELDS and not self._has_reported_line and not self._is_too_large and line != _DONE:
            self._has_reported_line = True
            return [dropped_event("", "not_json")]
        return []

    def _buffer_data(self, value: bytes) -> None:
        self._data_size += len(value) + 1
        if self._data_size > self._limit + 1:
            self._is_too_large = True
            self._data.clear()
        else:
            self._data.append(value)

    def _dispatch_event(self) -> list[Event]:
        data, over = b"\n".join(self._data), self._is_too_large
        self._data.clear()
        self._data_size = 0
        self._is_too_large = self._has_reported_line = False
        if over:
            return [dropped_event("", "too_large")]
        if not data or data == _DONE:
            return []
        event = self._decode_data(data)
        return [*self._coerce.take_notices(), event]

    def _decode_data(self, data: bytes) -> Event:
        # JSON that nests deeper has an opening and a closing bracket for every level, so a short delta is not searched.
        if len(data) > 2 * MAX_EVENT_DEPTH and is_too_deep(data, MAX_EVENT_DEPTH):
            return dropped_event("", "too_deep")
        try:
            return decode_event(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return self._decode_leniently(data)

    def _decode_leniently(self, data: bytes) -> Event:
        """Decode an event of an older protocol, or of a server that is not strict."""
        try:
            members: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return dropped_event("", "not_json")
        if not isinstance(members, dict):
            return dropped_event("", "not_an_event")
        named = cast("dict[str, Any]", members)
        try:
            return self._coerce(named)
        except (TypeError, ValueError, RecursionError):
            return dropped_event(str(named.get("type", "")), "not_an_event")
