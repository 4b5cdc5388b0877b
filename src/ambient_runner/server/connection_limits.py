"""uvicorn's HTTP protocol with limits for clients that send too slowly, or too much before there is a request, or that do not read.

`ambient serve` uses it. uvicorn limits neither the headers nor the time for them, and waits without a limit for a client that does not
read. The limits of a request body need no protocol: `request_parsing.py` has them.
"""

from __future__ import annotations

import fcntl
import logging
import re
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ambient_runner.errors import HeadersTooLarge, MalformedRequest, RequestTimedOut
from ambient_runner.server import metrics
from ambient_runner.server.error_responses import response_for

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from ambient_runner.errors import RunnerError

__all__ = ["ConnectionLimits", "LimitedHttpProtocol", "make_http_protocol"]

_TARGET_HOST_END = re.compile(rb"[/?#]")
_LINGER_TIMEOUT = 1.0  # seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """Limits of what a client sends, and of the time in which it sends and reads, in bytes and seconds."""

    header_bytes: int = 64 << 10
    """Of the request line and all headers, trailers included."""
    first_byte_timeout: float = 10.0
    """From the connection to its first byte. Afterwards uvicorn's keep-alive timeout counts."""
    headers_timeout: float = 10.0
    """From the first byte of a request to the end of its headers."""
    unread_body_timeout: float = 30.0
    """From the end of a response to that of a request body that was not read."""
    slow_reader: float = 60.0
    """Time in which a client that has not read all of a response must read some of it."""


class RequestParser(HttpRequestParser):
    """A parser that declines every offer to upgrade the protocol: it would not read the body of such a request.

    HTTP lets a server ignore the offer, which Java's client and `curl --http2` send with every first request.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: LimitedHttpProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        with suppress(AttributeError):  # Unknown before httptools 0.6.3. As uvicorn sets it.
            self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        parser, rest = self, memoryview(data)
        while True:
            try:
                return HttpRequestParser.feed_data(parser, rest)
            except HttpParserUpgrade as stop:
                # Raised at the end of the headers. This parser regards the request as complete, and accepts nothing more if the
                # connection closes.
                if not self._protocol.head_without_upgrade:
                    raise
                head, rest = self._protocol.head_without_upgrade, rest[stop.args[0] :]
                parser = self._protocol.parser = RequestParser(self._protocol)
                HttpRequestParser.feed_data(parser, head)


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes connections that exceed the limits. A slow response goes on while its client reads any of it.

    Its attributes have slots: with more than the 30 names that instances can share, each connection would have a dict of its own (1.2 KB).
    """

    __slots__ = (
        "_header_bytes",
        "_is_idle",
        "_is_in_body",
        "_is_refused",
        "_read_timer",
        "_timer",
        "_unparsed_bytes",
        "_unread_bytes",
        "head_without_upgrade",
    )

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser = RequestParser(self)
        self.head_without_upgrade = b""
        """The head of a request that offers to upgrade the protocol, to be parsed again without the offer; empty for all others."""
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
        self._read_timer: TimerHandle | None = None
        """Calls `_check_reader` when the client must have read something."""
        self._unread_bytes = 0
        """Bytes that the client had not read when that timer was started."""

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._start_timer(self.limits.first_byte_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not self._is_in_body and not self._is_responding() and (self._is_idle or self._timer is None):
            self._start_timer(self.limits.headers_timeout)
        self._is_idle = False
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if max(self._header_bytes, self._unparsed_bytes) > self.limits.header_bytes:
            self._refuse(HeadersTooLarge())

    def on_message_begin(self) -> None:
        self._header_bytes = self._unparsed_bytes = 0
        self.head_without_upgrade = b""
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + len(b": \r\n"))
        if not self._is_in_body:  # Trailers must not become headers: RFC 9110, 6.5.1.
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._header_bytes > self.limits.header_bytes:
            self._refuse(HeadersTooLarge())
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self.head_without_upgrade = self._encode_head_without_upgrade()
        elif not self._is_refused:
            self._stop_timer()
            self._is_in_body = True
            self._apply_target_host()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        if self._is_refused or self.head_without_upgrade:
            return
        self._is_in_body, self._is_idle = False, True
        super().on_message_complete()
        if not self._is_responding():  # The body was not read: uvicorn's timer has ended with its first byte.
            self._start_timer(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_read_timer()
        elif self._is_in_body and not self._is_responding():
            self._start_timer(self.limits.unread_body_timeout)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP. Called by uvicorn."""
        self._refuse(MalformedRequest())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start_read_timer()

    def _is_responding(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request.
        return cycle is not None and not cycle.response_complete

    def _apply_target_host(self) -> None:
        """Make the host of an absolute target the value of `Host`: it counts instead (RFC 9112, 3.2.2), and the app does not see it."""
        _, separator, rest = self.url.partition(b"://")
        if separator and not self.url.startswith(b"/"):
            host = _TARGET_HOST_END.split(rest, maxsplit=1)[0]
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]

    def _encode_head_without_upgrade(self) -> bytes:
        request_line = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"".join((request_line, *lines, b"\r\n"))

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
            self._start_read_timer()
        else:
            self._refuse(RequestTimedOut())

    def _start_read_timer(self) -> None:
        """Abort the connection unless its client reads something in time. A transport that is closed still waits for that.

        The timer is not stopped when the transport accepts more: `_check_reader` starts it again, or has nothing to do.
        """
        self._stop_read_timer()
        if self.transport.get_write_buffer_size():
            self._unread_bytes = _count_unread_bytes(self.transport)
            self._read_timer = self.loop.call_later(self.limits.slow_reader, self._check_reader)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reader(self) -> None:
        """Abort the connection if its client has read nothing since the timer was started."""
        self._read_timer = None
        is_waiting = self.flow.write_paused or self.transport.is_closing()
        if is_waiting and _count_unread_bytes(self.transport) == self._unread_bytes:
            self._abort_slow_client()
        elif is_waiting:
            self._start_read_timer()

    def _abort_slow_client(self) -> None:
        self.transport.abort()
        metrics.SLOW_CLIENTS_DISCONNECTED.inc()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        logger.info(
            "Disconnected a client of %s: it has read nothing for %g s. Raise `slow_reader` if it needs longer pauses",
            f"{cycle.scope['method']} {cycle.scope['path']}" if cycle else "an incomplete request",
            self.limits.slow_reader,
        )

    def _refuse(self, error: RunnerError) -> None:
        """Answer and close. What the client still sends is read for a moment, or it could not read the answer."""
        if self._is_refused:
            return
        self._is_refused = True
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.transport.abort()
                return
            # As uvicorn does for a client that is gone: the app gets a disconnect, and nothing that it sends is written.
            cycle.disconnected = True
            cycle.message_event.set()
        self._unset_keepalive_if_required()
        response = response_for(error, "A request")
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + bytes(response.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_timer(_LINGER_TIMEOUT)


def make_http_protocol(*, slow_reader: float) -> type[LimitedHttpProtocol]:
    """Return the protocol with this time for clients that do not read."""

    class Protocol(LimitedHttpProtocol):
        __slots__ = ()
        limits = ConnectionLimits(slow_reader=slow_reader)

    return Protocol


def _count_unread_bytes(transport: Transport) -> int:
    """Return the bytes that were sent and not received by the other end, as far as the system tells.

    The kernel accepts up to megabytes. It accepts more only when a third of them was received, so a transport that waits is no sign that a
    client does not read.
    """
    queued = bytearray(4)
    connection = transport.get_extra_info("socket")
    with suppress(OSError):
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
