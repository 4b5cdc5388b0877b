"""Route for feedback: `POST /feedback`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from fastapi import APIRouter, Request, Response

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import RunnerError
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.remote_platform import agent_of_thread, forward_to_agent
from ambient_runner.server.request_parsing import forwarded_headers, parse_thread_id, read_body
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.services.credentials import RequestScope
from ambient_runner.services.feedback import MAX_FEEDBACK, TIMEOUT, LangfuseScores, read_feedback, record_feedback

if TYPE_CHECKING:
    from ambient_runner.config import Settings
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.run import Actor
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.services.feedback import Feedback, Payload, Score, ScoreSink

logger = logging.getLogger(__name__)


def feedback_routes(runtime: ServerRuntime, guard: Guard) -> APIRouter:
    """Return the route `POST /feedback`. Scores are sent to Langfuse if runs are traced there."""
    router = APIRouter(route_class=YieldingRoute)
    scores = langfuse_scores(runtime.settings)

    @router.post("/feedback")
    async def post_feedback(request: Request) -> Response:
        actor = await guard(request)
        feedback = read_feedback(await read_body(request, min(MAX_FEEDBACK, runtime.settings.max_body)))
        # Clients with a single thread use its id as their session name.
        default = runtime.settings.default_thread or feedback.payload.session_name or ""
        thread = actor.thread_key(parse_thread_id(feedback.thread_members, request.query_params, default=default))
        payload, recorded = await submit_feedback(runtime, request, actor, thread, feedback, scores)
        event = {"name": "ambient:feedback", "metaType": feedback.meta_type, "payload": payload, "recorded": recorded}
        return JsonResponse({"type": "RAW", "event": event})

    return router


async def submit_feedback(
    runtime: ServerRuntime,
    request: Request,
    actor: Actor,
    thread: ThreadKey,
    feedback: Feedback,
    scores: ScoreSink | None,
    *,
    event_id: str = "",
) -> tuple[Payload, bool]:
    """Store feedback and send its score: to `scores`, else to the server that runs the agent. See `record_feedback`."""
    runner = await runtime.ensure_runner()
    headers = forwarded_headers(request, runtime.settings.pass_headers)
    scope = RequestScope(actor=actor, thread=thread, headers=headers)
    sink = scores or AgentServerScores(runtime, request, scope, feedback)
    return await record_feedback(runner, thread, feedback, sink, event_id=event_id)


class AgentServerScores:
    """Sends feedback to the server that runs the thread's agent, which may trace its runs. A ScoreSink."""

    def __init__(self, runtime: ServerRuntime, request: Request, scope: RequestScope, feedback: Feedback) -> None:
        self._runtime = runtime
        self._request = request
        self._scope = scope
        self._feedback = feedback

    async def send_score(self, score: Score) -> bool:
        """Return True if the other server delivered the score. It has the run's messages, but maybe another trace."""
        host = await agent_of_thread(self._runtime, self._scope.thread)
        if host is None:
            return False
        payload: dict[str, Any] = {**msgspec.to_builtins(self._feedback.payload), "userId": score.metadata["user"]}
        if "messageId" in payload:
            payload.pop("traceId", None)
        body = {"type": self._feedback.type, "metaType": self._feedback.meta_type, "payload": payload}
        with anyio.move_on_after(TIMEOUT):
            try:
                response = await forward_to_agent(self._runtime, host, self._request, "/feedback", self._scope, body)
            except RunnerError:
                logger.warning(
                    "Feedback on thread %s is stored here, but the server of agent %s did not accept it",
                    self._scope.thread.id,
                    host.name,
                    exc_info=True,
                )
                return False
            return response is not None and _is_recorded(response.body)
        return False


def _is_recorded(body: Any) -> bool:
    event = as_object(as_object(body).get("event"))
    return event.get("recorded") is True


def langfuse_scores(settings: Settings) -> ScoreSink | None:
    """Return the sink of scores in Langfuse; None if runs are not traced there."""
    langfuse = settings.tracing.langfuse
    return LangfuseScores(langfuse) if langfuse else None
