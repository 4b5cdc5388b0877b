"""The door for feedback: `POST /feedback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from ambient_runner.server.error_responses import AmbientRoute, Json
from ambient_runner.server.request_parsing import named_thread, read_body
from ambient_runner.services.feedback import MAX_FEEDBACK, LangfuseScores, read_feedback, record

if TYPE_CHECKING:
    from ambient_runner.config import Settings
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import Service
    from ambient_runner.services.feedback import Scores


def feedback_routes(service: Service, guard: Guard) -> APIRouter:
    """`POST /feedback`. Scores go to Langfuse when runs are traced there."""
    router = APIRouter(route_class=AmbientRoute)
    scores = _scores(service.settings)

    @router.post("/feedback")
    async def feedback(request: Request) -> Response:
        actor = await guard(request)
        given = read_feedback(await read_body(request, min(MAX_FEEDBACK, service.settings.max_body)))
        # Clients of one thread name it as their session.
        default = service.settings.default_thread or given.payload.session_name or ""
        thread = actor.thread(named_thread(given.place, request.query_params, default=default))
        payload, recorded = await record(await service.runner(), thread, given, scores)
        said = {"name": "ambient:feedback", "metaType": given.meta_type, "payload": payload, "recorded": recorded}
        return Json({"type": "RAW", "event": said})

    return router


def _scores(settings: Settings) -> Scores | None:
    langfuse = settings.tracing.langfuse
    return LangfuseScores(langfuse) if langfuse else None
