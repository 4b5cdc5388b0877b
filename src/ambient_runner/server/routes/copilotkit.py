"""The routes of CopilotKit's runtime, so that its pages need no server between them and this one: `/copilotkit`.

Every operation has a route of its own, and is also reached through the single route, `POST /copilotkit`: a client falls back to it whenever
`GET /copilotkit/info` fails, whatever the reason. `copilotkit_runs.py` and `copilotkit_threads.py` have the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.protocol.capabilities import agent_capabilities
from ambient_runner.protocol.copilotkit import runtime_info
from ambient_runner.protocol.copilotkit_input import parse_envelope, parse_resource_path
from ambient_runner.server.error_responses import JsonResponse
from ambient_runner.server.request_parsing import read_body, read_run_body
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.routes.copilotkit_runs import CopilotKitRuns
from ambient_runner.server.routes.copilotkit_threads import CopilotKitThreads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.copilotkit_input import ResourcePath
    from ambient_runner.runs.run import Actor
    from ambient_runner.server.guard import Guard
    from ambient_runner.server.routes.runs import PrepareRun
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.server.suggestions import Suggest

_MAX_SMALL_BODY_BYTES = 1 << 16
"""Bytes of a body that is no run input."""
_PREFIX = "/copilotkit"


class CopilotKitRoute(YieldingRoute):
    """A route whose errors have CopilotKit's shape: its client prints `message`."""

    @staticmethod
    def render_error(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> JsonResponse:
        return JsonResponse({"error": code, "message": message}, status_code=status, headers=headers)


def copilotkit_routes(
    runtime: ServerRuntime,
    guard: Guard,
    suggestions: Mapping[str, Suggest],
    *,
    prepare_run: PrepareRun | None = None,
) -> APIRouter:
    """Return the routes below `/copilotkit`, and the single route. `suggestions` are the sources by the name of the agent."""
    router = APIRouter(prefix=_PREFIX, route_class=CopilotKitRoute)
    runs = CopilotKitRuns(runtime, suggestions, prepare_run, CopilotKitRoute.render_error)
    threads = CopilotKitThreads(runtime)
    single_route = _SingleRoute(runtime, runs, threads)
    _add_run_routes(router, runtime, guard, runs)
    _add_thread_routes(router, guard, threads)

    @router.post("/", include_in_schema=False)
    @router.post("")
    async def dispatch(request: Request) -> Response:
        actor = await guard(request)
        return await single_route.dispatch(request, actor, await read_body(request, runtime.settings.max_body))

    return router


def _add_run_routes(router: APIRouter, runtime: ServerRuntime, guard: Guard, runs: CopilotKitRuns) -> None:
    @router.get("/info")
    async def get_info(request: Request) -> Response:
        await guard(request)
        return JsonResponse(_describe_runtime(runtime))

    @router.post("/agent/{agent}/run")
    async def start_run(request: Request, agent: str) -> Response:
        actor = await guard(request)
        return await runs.start(request, actor, agent, await read_run_body(request, runtime.settings.max_body))

    @router.post("/agent/{agent}/connect")
    async def connect(request: Request, agent: str) -> Response:
        actor = await guard(request)
        return await runs.connect(request, actor, agent, await read_run_body(request, runtime.settings.max_body))

    @router.post("/agent/{agent}/suggest")
    async def suggest(request: Request, agent: str) -> Response:
        actor = await guard(request)
        return await runs.suggest(request, actor, agent, await read_run_body(request, runtime.settings.max_body))

    @router.post("/agent/{agent}/stop/{id:path}")
    async def stop_run(request: Request, agent: str, id: str) -> Response:  # noqa: A002
        actor = await guard(request)
        body = await read_body(request, _MAX_SMALL_BODY_BYTES, media_types=("application/json", ""))
        return await runs.stop(actor, agent, id, body)


def _add_thread_routes(router: APIRouter, guard: Guard, threads: CopilotKitThreads) -> None:
    @router.get("/threads")
    async def list_threads(request: Request) -> Response:
        return await threads.list_threads(await guard(request), request.query_params)

    @router.get("/threads/{id:path}/messages")
    async def inspect_messages(request: Request, id: str) -> Response:  # noqa: A002
        return await threads.inspect_messages(await guard(request), id)

    @router.get("/threads/{id:path}/events")
    async def inspect_events(request: Request, id: str) -> Response:  # noqa: A002
        return await threads.inspect_events(await guard(request), id)

    @router.get("/threads/{id:path}/state")
    async def inspect_state(request: Request, id: str) -> Response:  # noqa: A002
        return await threads.inspect_state(await guard(request), id)

    @router.patch("/threads/{id:path}")
    async def change_thread(request: Request, id: str) -> Response:  # noqa: A002
        actor = await guard(request)
        return await threads.change_thread(actor, id, await read_body(request, _MAX_SMALL_BODY_BYTES))

    @router.post("/threads/{id:path}/archive")
    async def archive_thread(request: Request, id: str) -> Response:  # noqa: A002
        return await threads.archive_thread(await guard(request), id)

    @router.delete("/threads/{id:path}")
    async def erase_thread(request: Request, id: str) -> Response:  # noqa: A002
        return await threads.erase_thread(await guard(request), id)

    @router.post("/annotate")
    async def annotate(request: Request) -> Response:
        actor = await guard(request)
        return await threads.annotate(request, actor, await read_body(request, _MAX_SMALL_BODY_BYTES))


def _describe_runtime(runtime: ServerRuntime) -> dict[str, object]:
    hosts = {name: agent for name, agent in runtime.agents.items() if isinstance(agent, AgentHost)}
    capabilities = {
        name: agent_capabilities(
            name,
            host.bridge.capabilities(),
            durable=runtime.settings.is_durable,
            audience=runtime.audiences.name_for(name),
            features=runtime.platform.features_of(name),
        )
        for name, host in hosts.items()
    }
    return runtime_info({"default": capabilities[runtime.default_agent], **capabilities})


class _SingleRoute:
    """Dispatches the requests of the single route. The request itself is already authorized."""

    def __init__(self, runtime: ServerRuntime, runs: CopilotKitRuns, threads: CopilotKitThreads) -> None:
        self._runtime = runtime
        self._runs = runs
        self._threads = threads

    async def dispatch(self, request: Request, actor: Actor, body: bytes) -> Response:
        """Return the response of the operation that the envelope names. Raises: InvalidMethod, and what the operation raises."""
        envelope = await self._runtime.parse_body(parse_envelope, body)
        agent = envelope.params.get("agentId", "")
        match envelope.method:
            case "info":
                return JsonResponse(_describe_runtime(self._runtime))
            case "agent/run":
                return await self._runs.start(request, actor, agent, envelope.body)
            case "agent/connect":
                return await self._runs.connect(request, actor, agent, envelope.body)
            case "agent/suggest":
                return await self._runs.suggest(request, actor, agent, envelope.body)
            case "agent/stop":
                return await self._runs.stop(actor, agent, envelope.params["threadId"], envelope.body)
            case "resource/request":
                path = parse_resource_path(envelope.params["path"])
                return await self._open_resource(request, actor, envelope.params["httpMethod"], path, envelope.body)

    async def _open_resource(
        self, request: Request, actor: Actor, method: str, path: ResourcePath, body: bytes
    ) -> Response:
        threads = self._threads
        match method.upper(), path.segments:
            case "GET", ("threads",):
                return await threads.list_threads(actor, QueryParams(path.query))
            case "GET", ("threads", thread, "messages"):
                return await threads.inspect_messages(actor, thread)
            case "GET", ("threads", thread, "events"):
                return await threads.inspect_events(actor, thread)
            case "GET", ("threads", thread, "state"):
                return await threads.inspect_state(actor, thread)
            case "PATCH", ("threads", thread):
                return await threads.change_thread(actor, thread, body)
            case "POST", ("threads", thread, "archive"):
                return await threads.archive_thread(actor, thread)
            case "DELETE", ("threads", thread):
                return await threads.erase_thread(actor, thread)
            case "POST", ("annotate",):
                return await threads.annotate(request, actor, body)
            case _:
                raise HTTPException(404)
