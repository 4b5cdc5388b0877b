"""uvicorn's HTTP protocol with limits for clients that send too slowly or too much before there is a request. `ambient serve` uses it.

uvicorn limits neither the headers nor the time for them. The limits of a body need no protocol: `request_parsing.py` has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ambient_runner.errors import HeadersTooLarge, RequestTimedOut
from ambient_runner.server.error_responses import response_for

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from ambient_runner.errors import RunnerError

__all__ = ["ConnectionLimits", "LimitedHttpProtocol"]

_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)
_LINGER_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Limits of the size and the duration of what a connection sends, in bytes and seconds."""

    header_bytes: int = 64 << 10
    """Of the request line and all headers, trailers included."""
    first_byte_timeout: float = 10.0
    """From the connection to its first byte. Afterwards uvicorn's keep-alive timeout counts."""
    headers_timeout: float = 10.0
    """From the first byte of a request to the end of its headers."""
    unread_body_timeout: float = 30.0
    """From the end of a response to that of a request body that was not read."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes connections that exceed the limits. A response that is being sent is never cut for being slow.

    Its attributes have slots: with more than the 30 names that instances can share, each connection would have a dict of its own (1.2 KB).
    """

    __slots__ = ("_header_bytes", "_is_idle", "_is_in_body", "_is_refused", "_timer", "_unparsed_bytes")

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: TimerHandle | None = None
        self._is_idle = True
        """True if nothing of the next request was received."""
        self._is_in_body = False
        """True from the end of a request's headers to the end of its body."""
        self._is_refused = False
        self._header_bytes = 0
        """Size of the request line, headers and trailers so far."""
        self._unparsed_bytes = 0
        """Bytes received since the parser last reported something: it keeps a header that is incomplete."""

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._start_timer(self.limits.first_byte_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not self._is_in_body and not self._is_responding() and (self._is_idle or self._timer is None):
            self._start_timer(self.limits.headers_timeout)
        self._is_idle = False
        self._unparsed_bytes += len(data)
        super().data_received(data if self._is_in_body else _without_upgrade(data))
        if max(self._header_bytes, self._unparsed_bytes) > self.limits.header_bytes:
            self._refuse(HeadersTooLarge())

    def on_message_begin(self) -> None:
        self._header_bytes = self._unparsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._header_bytes > self.limits.header_bytes:
            self._refuse(HeadersTooLarge())
        if not self._is_refused:
            self._stop_timer()
            self._is_in_body = True
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        if self._is_refused:
            return
        self._is_in_body, self._is_idle = False, True
        super().on_message_complete()
        if not self._is_responding():  # The body was not read: uvicorn's timer has ended with its first byte.
            self._start_timer(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body and not self._is_responding() and not self.transport.is_closing():
            self._start_timer(self.limits.unread_body_timeout)

    def _is_responding(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request.
        return cycle is not None and not cycle.response_complete

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        self._unparsed_bytes = 0

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._handle_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_timeout(self) -> None:
        """Close the connection; with an answer if there is half a request that has none."""
        self._timer = None
        if self._is_idle or self._is_in_body or self._is_refused:
            self.transport.close()
        else:
            self._refuse(RequestTimedOut())

    def _refuse(self, error: RunnerError) -> None:
        """Answer and close. What the client still sends is read for a moment, or it could not read the answer."""
        if self._is_refused:
            return
        self._is_refused = True
        if self._is_responding():
            self.transport.abort()
            return
        self._unset_keepalive_if_required()
        response = response_for(error, "A request")
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + bytes(response.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_timer(_LINGER_TIMEOUT)


def _without_upgrade(data: bytes) -> bytes:
    """Return the beginning of a request without its offer to upgrade the protocol: the parser would not read the body of such a request.

    HTTP lets a server ignore the offer, which Java's client and `curl --http2` send with every first request.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-ignored-upgrade:", head) + end + rest
