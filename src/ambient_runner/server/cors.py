"""CORS for the allowed origins, on our own paths only. Credentials are never allowed, and other origins are never echoed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ambient_runner.errors import Forbidden
from ambient_runner.server.error_responses import response_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CorsMode = bool | Literal["auto"]
"""True for CORS and a check of the origin by us, False for neither, `auto` for neither if the app has a CORSMiddleware of its own."""

_ALLOWED_HEADERS = (
    "Content-Type, Accept, Authorization, Last-Event-ID, Idempotency-Key, X-Ambient-On-Busy, X-Ambient-On-Disconnect, "
    "X-Ambient-Protocol, Prefer, X-GitHub-Token, X-GitLab-Token, traceparent"
)
_ALLOWED_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"


class Cors:
    """ASGI middleware: answers preflight requests of allowed origins and adds CORS headers to their responses."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        allows: Callable[[str], bool],
        check_host: Callable[[Request], object],
        is_left_to: Callable[[object], bool],
        routes: Sequence[BaseRoute],
        prefix: str = "",
        headers: Collection[str] = (),
    ) -> None:
        """`allows` decides about an origin, `check_host` refuses a request for another host.

        `routes` are ours, without the prefix; other paths of the app are left alone, and all paths
        of an app for which `is_left_to` returns True.

        `headers` are request headers to allow in addition to those this server reads.
        """
        self._app = app
        self._allows = allows
        self._check_host = check_host
        self._is_left_to = is_left_to
        self._routes = tuple(routes)
        self._prefix = prefix
        self._headers = ", ".join((_ALLOWED_HEADERS, *headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is None or not self._allows(origin) or not self._is_ours(scope):
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            await self._answer_preflight(origin, Request(scope))(scope, receive, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._cors_headers(origin))
                headers.add_vary_header("Origin")
            await send(message)

        await self._app(scope, receive, send_with_cors)

    def _answer_preflight(self, origin: str, request: Request) -> Response:
        try:
            self._check_host(request)
        except Forbidden as error:
            return response_for(error, f"OPTIONS {request.url.path}")
        return Response(status_code=204, headers={**self._cors_headers(origin), "Vary": "Origin"})

    def _is_ours(self, scope: Scope) -> bool:
        path = _path_in_app(scope)
        if self._is_left_to(scope.get("app")) or not path.startswith(self._prefix):
            return False
        in_prefix = {"type": "http", "method": "", "path": path.removeprefix(self._prefix) or "/", "root_path": ""}
        return any(route.matches(in_prefix)[0] is not Match.NONE for route in self._routes)

    def _cors_headers(self, origin: str) -> dict[str, str]:
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Headers": self._headers,
            "Access-Control-Allow-Methods": _ALLOWED_METHODS,
            "Access-Control-Expose-Headers": "X-Ambient-Run, X-Ambient-Thread",
            "Access-Control-Max-Age": "600",
        }


def has_cors_middleware(app: object) -> bool:
    """Return True if the application has added a CORSMiddleware, before or after our routes."""
    return isinstance(app, Starlette) and any(
        isinstance(entry.cls, type) and issubclass(entry.cls, CORSMiddleware) for entry in app.user_middleware
    )


def _path_in_app(scope: Scope) -> str:
    """Return the path without that of the mount or the proxy, which it begins with unless a proxy has removed it."""
    path, root = scope["path"], scope.get("root_path", "")
    return path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
