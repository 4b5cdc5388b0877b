"""Large bodies that are no event streams, sent in chunks: what the server buffers for a client is bounded, and the client has to read.

Under `ambient serve` the protocol (`connection_limits.py`) disconnects a client that does not read. Under another server the time is
limited here.
"""

from __future__ import annotations

import logging
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from ambient_runner.server import metrics
from ambient_runner.server.direct_send import SERVER_CONNECTION
from ambient_runner.server.error_responses import JsonResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

__all__ = ["LargeJsonResponse", "send_chunks"]

_CHUNK_BYTES = 1 << 16

logger = logging.getLogger(__name__)


class LargeJsonResponse(JsonResponse):
    """A JSON response of any size. It ends incomplete if its client reads nothing for `slow_reader` seconds."""

    def __init__(self, content: Any, *, slow_reader: float) -> None:
        super().__init__(content)
        self._slow_reader = slow_reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytes(self.body)
        if len(body) <= _CHUNK_BYTES:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(_split_body(body)) as chunks:
            await send_chunks(scope, send, chunks, self._slow_reader)


async def _split_body(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), _CHUNK_BYTES):
        yield body[start : start + _CHUNK_BYTES]


async def send_chunks(scope: Scope, send: Send, chunks: AsyncGenerator[bytes, None], slow_reader: float) -> None:
    """Send a body and its end. Leave it incomplete if the server accepts nothing more for `slow_reader` seconds: then it is closed."""
    timeout = math.inf if SERVER_CONNECTION in scope else slow_reader
    async for chunk in chunks:
        with anyio.move_on_after(timeout) as sending:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if sending.cancelled_caught:
            _report_slow_client(scope, slow_reader)
            return
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _report_slow_client(scope: Scope, slow_reader: float) -> None:
    metrics.SLOW_CLIENTS_DISCONNECTED.inc()
    logger.info(
        "The response to %s %s ends incomplete: its client has read nothing for %g s. Raise `slow_reader` if it needs longer pauses",
        scope["method"],
        scope["path"],
        slow_reader,
    )
