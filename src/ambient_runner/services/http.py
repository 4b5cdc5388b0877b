"""One small request to a server the operator has named. It blocks: call it in a thread.

Redirects are not followed: they could lead what is sent, a key among it, elsewhere.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
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
    """The answer, with at most `limit` bytes of its body. Raises: OSError when there is none."""
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(limit))
    except http.client.HTTPException as error:
        raise ConnectionError("the answer is not HTTP") from error
    finally:
        connection.close()


def _connection(scheme: str, host: str, port: int | None, timeout: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port, timeout=timeout)
