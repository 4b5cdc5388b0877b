"""Errors of our routes as JSON: a stable code and a message that says what to do."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from ambient_runner.errors import LedgerError, RunnerError
from ambient_runner.server import metrics

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Scope

logger = logging.getLogger(__name__)

_HTTP_CODES = {
    404: (
        "not_found",
        "There is no such route. `POST /` and `POST /agents/NAME` start a run, `GET /thread/list` lists the threads. Routes for files, "
        "repositories and MCP servers exist only if an agent uses them. Ids in a path must be percent-encoded.",
    ),
    405: (
        "method_not_allowed",
        "This route does not support this method. The `Allow` header lists the methods it supports.",
    ),
}


class JsonResponse(Response):
    """A JSON response. The content is Structs, lists and dicts, or JSON as bytes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else msgspec.json.encode(content)


def error_response(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> JsonResponse:
    """Return an error response: `{"error": {"code", "message"}}`."""
    return JsonResponse({"error": {"code": code, "message": message}}, status_code=status, headers=headers)


RenderError = Callable[[str, str, int, dict[str, str] | None], JsonResponse]
"""Returns the response for a code, a message, a status and headers."""


class AmbientRoute(APIRoute):
    """A route that turns its own errors into responses, so that the error handling of the embedding app does not change."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if is_exact_path(scope) else (Match.NONE, {})

    @staticmethod
    def render_error(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> JsonResponse:
        """Return the response for an error of this route."""
        return error_response(code, message, status, headers)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return partial(self.call_handler, super().get_route_handler())

    async def call_handler(
        self, handler: Callable[[Request], Coroutine[Any, Any, Response]], request: Request
    ) -> Response:
        """Return the response of the handler, or the error response if it raises."""
        try:
            return await handler(request)
        except Exception as error:
            response = response_for(error, f"{request.method} {request.url.path}", self.render_error)
            # Its frames hold the request body, in a reference cycle that only a full garbage collection would free.
            traceback.clear_frames(error.__traceback__)
            return response


def is_exact_path(scope: Scope) -> bool:
    """Return False for a path that ends in a line feed: routes are regular expressions whose `$` also matches before it.

    `DELETE /thread/t%0A` would delete the thread `t`.
    """
    return not scope["path"].endswith("\n")


def response_for(error: Exception, request_line: str, render: RenderError = error_response) -> JsonResponse:
    """Return the response for an error of a request, which is counted and, if it is not the client's, logged."""
    match error:
        case RunnerError():
            return _runner_error_response(error, request_line, render)
        case ClientDisconnect():
            return render("client_left", "The client disconnected before its request was complete.", 499, None)
        case HTTPException():
            return http_error_response(error, render)
        case _:
            logger.error(
                "%s failed unexpectedly; this is a bug of the server or of its agent", request_line, exc_info=error
            )
            return _runner_error_response(RunnerError(), request_line, render)


def http_error_response(error: HTTPException, render: RenderError = error_response) -> JsonResponse:
    """Return the error response for an HTTPException of the web framework."""
    code, sentence = _HTTP_CODES.get(error.status_code, ("refused", str(error.detail)))
    return render(code, sentence, error.status_code, dict(error.headers or {}))


def _runner_error_response(error: RunnerError, request_line: str, render: RenderError) -> JsonResponse:
    metrics.REFUSALS.labels(error.code).inc()
    if isinstance(error, LedgerError):  # The store reports an outage itself, once: no traceback for every request.
        logger.warning("%s was answered with %d %s: %s", request_line, error.status, error.code, error.message)
    elif error.status >= 500:
        logger.warning("%s was answered with %d %s", request_line, error.status, error.code, exc_info=error)
    headers = {"Retry-After": "1"} if error.status in {429, 503} else None
    if error.status == 408:
        headers = {"Connection": "close"}  # The rest of the request would come first.
    return render(error.code, error.message, error.status, headers)
