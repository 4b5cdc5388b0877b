"""Every failure of our routes as JSON: a code that does not change and a sentence that says what to do."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ambient_runner.errors import RunnerError
from ambient_runner.runs import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)

_HTTP_CODES = {
    404: (
        "not_found",
        "There is no such route. `POST /` and `POST /agents/NAME` start a run, `GET /thread/list` lists the threads. Routes for files, "
        "repositories and MCP servers exist where an agent has a use for them. Ids in a path must be percent-encoded.",
    ),
    405: ("method_not_allowed", "This route exists, but not for this method. The `Allow` header says for which."),
}


class Json(Response):
    """A JSON body of Structs, lists and dicts."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else msgspec.json.encode(content)


def refusal(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> Json:
    """The one shape of an error."""
    return Json({"error": {"code": code, "message": message}}, status_code=status, headers=headers)


class AmbientRoute(APIRoute):
    """A route whose failures are answered here, so that a foreign app's own error handling stays as it is."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                answer = _answer(error)
                # Its frames hold the request's body, in a cycle that only a full collection would find.
                traceback.clear_frames(error.__traceback__)
                return answer

        return guarded


def _answer(error: Exception) -> Json:
    match error:
        case RunnerError():
            return _ours(error)
        case ClientDisconnect():
            return refusal("client_left", "The client left before its request was complete.", 499)
        case HTTPException():
            return http_refusal(error)
        case _:
            logger.error("A request failed", exc_info=error)
            return _ours(RunnerError())


def http_refusal(error: HTTPException) -> Json:
    """A framework's own refusal in our shape."""
    code, sentence = _HTTP_CODES.get(error.status_code, ("refused", str(error.detail)))
    return refusal(code, sentence, error.status_code, dict(error.headers or {}))


def _ours(error: RunnerError) -> Json:
    metrics.REFUSALS.labels(error.code).inc()
    if error.status >= 500:
        logger.warning("Answered %s", error.code, exc_info=error)
    headers = {"Retry-After": "1"} if error.status in {429, 503} else None
    return refusal(error.code, error.message, error.status, headers)
