"""ASGI middleware for an app that is nothing but ours: the host of a request is checked before anything answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ambient_runner.errors import Forbidden
from ambient_runner.server.error_responses import http_error_response, is_exact_path, response_for

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ambient_runner.server.guard import Guard

__all__ = ["HostCheck"]


class HostCheck:
    """Refuses requests for other hosts, also those that no route of ours answers: the OpenAPI schema, unknown paths, preflights."""

    def __init__(self, app: ASGIApp, *, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            try:
                self._guard.check_host(Request(scope))
            except Forbidden as error:
                answer = response_for(error, f"{scope['method']} {scope['path']}")
            else:
                if not is_exact_path(scope):
                    answer = http_error_response(HTTPException(404))
        await answer(scope, receive, send)
