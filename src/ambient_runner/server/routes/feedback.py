"""Route for feedback: `POST /feedback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from ambient_runner.server.error_responses import AmbientRoute, JsonResponse
from ambient_runner.server.request_parsing import parse_thread_id, read_body
from ambient_runner.services.feedback import MAX_FEEDBACK, LangfuseScores, read_feedback, record_feedback

if TYPE_CHECKING:
    from ambient_runner.config import Settings
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.feedback import ScoreSink


def feedback_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `POST /feedback`. Scores are sent to Langfuse if runs are traced there."""
    router = APIRouter(route_class=AmbientRoute)
    scores = _langfuse_scores(runtime.settings)

    @router.post("/feedback")
    async def post_feedback(request: Request) -> Response:
        actor = await guard(request)
        feedback = read_feedback(await read_body(request, min(MAX_FEEDBACK, runtime.settings.max_body)))
        # Clients with a single thread use its id as their session name.
        default = runtime.settings.default_thread or feedback.payload.session_name or ""
        thread = actor.thread_key(parse_thread_id(feedback.thread_members, request.query_params, default=default))
        payload, recorded = await record_feedback(await runtime.ensure_runner(), thread, feedback, scores)
        event = {"name": "ambient:feedback", "metaType": feedback.meta_type, "payload": payload, "recorded": recorded}
        return JsonResponse({"type": "RAW", "event": event})

    return router


def _langfuse_scores(settings: Settings) -> ScoreSink | None:
    langfuse = settings.tracing.langfuse
    return LangfuseScores(langfuse) if langfuse else None
