"""A small blocking HTTP client for a server that the operator configured. Call it in a thread.

It follows no redirect, because that could send a key to another host. One deadline covers the whole exchange, so a server that sends a
byte now and then cannot hold the thread.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

__all__ = ["HttpResponse", "send_request"]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status and body of a response. The body is cut at the caller's limit."""

    status: int
    body: bytes


def send_request(
    method: str, url: str, *, headers: Mapping[str, str], timeout: float, body: str | None = None, limit: int = 0
) -> HttpResponse:
    """Send a request and return the response with at most `limit` bytes of its body.

    Raises: OSError when there is no response (TimeoutError is one).
    """
    deadline = time.monotonic() + timeout
    parts = urlsplit(url)
    connection = _open_connection(parts.scheme, parts.hostname or "", parts.port, timeout)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers))
        with _begin_response(connection, method, deadline) as response:
            content = response.read(limit)
            if len(content) < limit and response.length:
                raise ConnectionError("the response was cut off")
            return HttpResponse(response.status, content)
    except http.client.HTTPException as error:
        raise ConnectionError("the response is not HTTP") from error
    finally:
        connection.close()


def _open_connection(scheme: str, host: str, port: int | None, timeout: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port, timeout=timeout)


def _begin_response(connection: http.client.HTTPConnection, method: str, deadline: float) -> http.client.HTTPResponse:
    """Read the response head under one deadline. `getresponse` would restart its timeout with every byte."""
    sock: Any = _DeadlineSocket(connection.sock, deadline)
    response = http.client.HTTPResponse(sock, method=method)
    try:
        response.begin()
    except BaseException:
        # The garbage collector would close the response after the file it reads from, which fails.
        response.close()
        raise
    return response


class _DeadlineSocket(io.RawIOBase):
    """A socket that can be read until a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response was too slow")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)
