"""One small request to a server the operator has named. It blocks: call it in a thread.

Redirects are not followed: they could lead what is sent, a key among it, elsewhere. There is one time for all of it: a server that
sends a byte now and then does not keep the thread.
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

__all__ = ["Answer", "send"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. The body ends where the caller's limit does."""

    status: int
    body: bytes


def send(
    method: str, url: str, *, headers: Mapping[str, str], timeout: float, body: str | None = None, limit: int = 0
) -> Answer:
    """The answer, with at most `limit` bytes of its body. Raises: OSError when there is none, TimeoutError among them."""
    end = time.monotonic() + timeout
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers))
        with _answer(connection, method, end) as answer:
            said = answer.read(limit)
            if len(said) < limit and answer.length:
                raise ConnectionError("the answer broke off")
            return Answer(answer.status, said)
    except http.client.HTTPException as error:
        raise ConnectionError("the answer is not HTTP") from error
    finally:
        connection.close()


def _connection(scheme: str, host: str, port: int | None, timeout: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port, timeout=timeout)


def _answer(connection: http.client.HTTPConnection, method: str, end: float) -> http.client.HTTPResponse:
    """As `getresponse`, whose timeout begins anew with every byte."""
    sock: Any = _Until(connection.sock, end)
    answer = http.client.HTTPResponse(sock, method=method)
    answer.begin()
    return answer


class _Until(io.RawIOBase):
    """A socket to read from until a moment comes."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock = sock
        self._end = end

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer came too slowly")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)
