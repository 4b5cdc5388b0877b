"""From the bytes of an AG-UI stream to events: what another server or an adapter has encoded. `encode.py` is the other way.

Lenient, because others wrote it: chunks may be cut anywhere, lines may end in LF, CRLF or CR, SSE and NDJSON may both come, and what is
not an event is passed over. That is said in its place by CUSTOM `ambient:dropped`, never raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner.protocol.agui_models import Coercer
from ambient_runner.protocol.events import decode_event
from ambient_runner.protocol.limits import MAX_EVENT, dropped

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Event

__all__ = ["EventReader"]

_BOM = b"\xef\xbb\xbf"
_LONGEST_NAME = 64
_DONE = b"[DONE]"
_OTHER_FIELDS = frozenset({b"", b"event", b"retry"})
"""Fields of SSE that say nothing of AG-UI. A comment is one without a name."""


class EventReader:
    """Feed it the stream piece by piece. One per stream."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self.last_id = ""
        """The newest `id:` of the stream."""
        self._limit = limit
        self._coerce = Coercer()
        self._began = False
        self._after_cr = False
        self._line: list[bytes] = []
        self._held = 0
        """Bytes of the line that is not complete yet."""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the event's lines that are."""
        self._over = False
        """Whether the event being read is already too large, so that the rest of it is passed over."""
        self._strange = False
        """Whether it has been said that there are lines here that belong to no event."""

    def feed(self, piece: bytes | str) -> list[Event]:
        """The events that are complete with this piece."""
        data = self._lines_end_in_lf(piece.encode("utf-8", "replace") if isinstance(piece, str) else piece)
        if b"\n" not in data:
            self._hold(data)
            return []
        first, *rest = data.split(b"\n")
        self._hold(first)
        whole = b"".join(self._line)
        self._line.clear()
        self._held = 0
        found: list[Event] = []
        for line in (whole, *rest[:-1]):
            found += self._take(line)
        self._hold(rest[-1])
        return found

    def end(self) -> list[Event]:
        """The stream is over: what is complete but for its last line break."""
        return [*self.feed(b"\n"), *self._take(b"")]

    def _lines_end_in_lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of a line, unless the event is too large already."""
        self._held += len(data)
        if self._held > self._limit + _LONGEST_NAME:
            self._over = True
            self._line[1:] = []
        elif data:
            self._line.append(data)

    def _take(self, line: bytes) -> list[Event]:
        """What a whole line makes complete."""
        if not self._began:
            self._began = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatched()
        if line[:1] == b"{":
            self._keep(line)
            return self._dispatched()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._keep(value)
        elif name == b"id":
            self.last_id = value.decode("utf-8", "replace")
        elif name not in _OTHER_FIELDS and not self._strange and not self._over and line != _DONE:
            self._strange = True
            return [dropped("", "not_json")]
        return []

    def _keep(self, value: bytes) -> None:
        self._size += len(value) + 1
        if self._size > self._limit + 1:
            self._over = True
            self._data.clear()
        else:
            self._data.append(value)

    def _dispatched(self) -> list[Event]:
        data, over = b"\n".join(self._data), self._over
        self._data.clear()
        self._size = 0
        self._over = self._strange = False
        if over:
            return [dropped("", "too_large")]
        if not data or data == _DONE:
            return []
        return [self._event(data)]

    def _event(self, data: bytes) -> Event:
        try:
            return decode_event(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return self._leniently(data)

    def _leniently(self, data: bytes) -> Event:
        """An event of an older protocol, or of a server that is not strict."""
        try:
            members: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return dropped("", "not_json")
        if not isinstance(members, dict):
            return dropped("", "not_an_event")
        named = cast("dict[str, Any]", members)
        try:
            return self._coerce(named)
        except (TypeError, ValueError, RecursionError):
            return dropped(str(named.get("type", "")), "not_an_event")
