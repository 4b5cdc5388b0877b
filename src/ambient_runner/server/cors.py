"""CORS for the listed origins, on our own paths only. Credentials are never allowed, and no origin is reflected that is not listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = (
    "Content-Type, Accept, Authorization, Last-Event-ID, Idempotency-Key, X-Ambient-On-Busy, X-Ambient-On-Disconnect, "
    "X-GitHub-Token, X-GitLab-Token, traceparent"
)
_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"


class Cors:
    """ASGI middleware: answers preflights of listed origins and marks their responses as readable."""

    def __init__(
        self, app: ASGIApp, *, origins: Collection[str], prefix: str = "", headers: Collection[str] = ()
    ) -> None:
        """`headers` are those that pages may send besides the ones this server knows."""
        self._app = app
        self._origins = frozenset(origins)
        self._prefix = prefix
        self._headers = ", ".join((_HEADERS, *headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin not in self._origins or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=self._allowed(origin))(scope, receive, send)
            return

        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._allowed(origin))
            await send(message)

        await self._app(scope, receive, mark)

    def _allowed(self, origin: str) -> dict[str, str]:
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Headers": self._headers,
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Expose-Headers": "X-Ambient-Run, X-Ambient-Thread",
            "Access-Control-Max-Age": "600",
            "Vary": "Origin",
        }
