"""HTTP endpoints of an ADKAgent, on the Runner, the ledger and the streams of this server."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ag_ui.core import AssistantMessage, RunAgentInput, ToolMessage
from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from ambient_runner.adk.routes import ADKEndpoints
from ambient_runner.bridges.adk.config import HIDDEN, ConfigContext
from ambient_runner.bridges.adk.hooks import HandlerContext
from ambient_runner.bridges.toolkit.agent_runs import has_own_run
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.compat.ag_ui_adk.adk_agent import ADKAgent, check_adk_agent
from ambient_runner.compat.ag_ui_adk.routed_bridge import RoutedBridge
from ambient_runner.compat.ag_ui_adk.run_bridge import PreparedRequest, current_request
from ambient_runner.config import Timeouts, read_settings
from ambient_runner.errors import UnknownThread
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.state import is_hidden
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.runs.run import Actor
from ambient_runner.server.app import build_runtime, include_routers
from ambient_runner.server.error_responses import AmbientRoute, JsonResponse
from ambient_runner.server.guard import Guard
from ambient_runner.server.routes.base import YieldingRoute
from ambient_runner.server.routes.threads import read_messages

if TYPE_CHECKING:
    from ag_ui.core import Message

    from ambient_runner.config import Settings
    from ambient_runner.server.guard import Authorize
    from ambient_runner.server.runtime import ServerRuntime

logger = logging.getLogger(__name__)

__all__ = [
    "AgentResolver",
    "add_adk_fastapi_endpoint",
    "create_adk_app",
    "make_extract_headers",
    "resolve_agent_from_message_history",
]

AgentResolver = Callable[[Request, RunAgentInput], Awaitable[ADKAgent | None]]
"""Returns the agent of a request, or None for the endpoint's own."""
StateExtractor = Callable[[Request, RunAgentInput], Awaitable[dict[str, Any]]]
_AGENT_NAME = "default"
_SHARED_USER = (
    "All callers of %s share the threads of one user, because its ADKAgent has no user_id_extractor. To keep users apart, pass one, and "
    "extract_state_from_request to return the user of a request."
)
_SCOPED_KEYS = ("app:", "user:")


class AgentStateRequest(BaseModel):
    """Body of `POST /agents/state`."""

    threadId: str  # noqa: N815  the published name
    appName: str | None = None  # noqa: N815  the published name
    userId: str | None = None  # noqa: N815  the published name
    name: str | None = None
    properties: Any = None


class RequestIdentity:
    """The application's extractors: each request is prepared once, before the Runner sees it."""

    def __init__(self, agent: ADKAgent, extract: StateExtractor | None, resolver: AgentResolver | None) -> None:
        self._agent = agent
        self._extract = extract
        self._resolver = resolver

    def config(self) -> ConfigContext:
        return ConfigContext(app_name=self._app_name, user_id=self._user_id, extract_initial_state=self._visible_state)

    async def prepare(self, run_input: RunAgentInput, request: Request) -> PreparedRequest:
        """Return the request with its agent and the extracted state. Raises: ConfigError if the resolver returns no ADKAgent."""
        extracted = (await self._extract(request, run_input) if self._extract else None) or {}
        state = _visible_part(as_object(run_input.state)) | extracted
        merged = run_input.model_copy(update={"state": state})
        agent = check_adk_agent((await self._resolver(request, merged) if self._resolver else None) or self._agent)
        hidden = {key: value for key, value in extracted.items() if is_hidden(key, HIDDEN)}
        if not agent.allow_scoped_state_keys:
            hidden = {key: value for key, value in hidden.items() if not key.startswith(_SCOPED_KEYS)}
        return PreparedRequest(agent=agent, run_input=merged, server_state=hidden)

    async def _prepare_once(self, run_input: RunAgentInput, request: Request) -> PreparedRequest:
        """Return the prepared request. The run's task inherits it as `current_request`."""
        prepared = getattr(request.state, "ambient_prepared", None)
        if prepared is None:
            prepared = request.state.ambient_prepared = await self.prepare(run_input, request)
            current_request.set(prepared)
        return prepared

    async def _app_name(self, run_input: RunAgentInput, request: Request) -> str:
        prepared = await self._prepare_once(run_input, request)
        return prepared.agent.app_name_of(prepared.run_input)

    async def _user_id(self, run_input: RunAgentInput, request: Request) -> str:
        prepared = await self._prepare_once(run_input, request)
        return prepared.agent.user_id_of(prepared.run_input)

    async def _visible_state(self, run_input: RunAgentInput, request: Request) -> dict[str, Any]:
        prepared = await self._prepare_once(run_input, request)
        return _visible_part(as_object(prepared.run_input.state))


def add_adk_fastapi_endpoint(
    app: FastAPI | APIRouter,
    agent: ADKAgent,
    path: str = "/",
    extract_headers: list[str] | None = None,
    extract_state_from_request: StateExtractor | None = None,
    agent_resolver: AgentResolver | None = None,
    *,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    **route_options: Any,
) -> ServerRuntime:
    """Serve the agent at `POST path`, with `GET path/capabilities` and `POST /agents/state`.

    An ADKAgent with a `run` of its own, or a wrapper with a `run` and the attributes of the ADKAgent inside, is served by that `run`.
    `extract_state_from_request` returns state of the server for a request; `agent_resolver` chooses the agent. `route_options`, such as
    `tags`, are those of `app.post`; `dependencies` apply to all three routes. Without `authorize`, `dependencies`, or
    `extract_state_from_request` and an agent with a `user_id_extractor`, only requests from this machine are served. `settings` default to
    those of `ambient.toml` and `AMBIENT_*`.
    Raises: ConfigError, ValueError.
    """
    check_adk_agent(agent)
    extract = _choose_extractor(extract_headers, extract_state_from_request)
    settings = (settings or read_settings()).with_all_props()
    settings = dataclasses.replace(settings, timeouts=_limit_timeouts(settings.timeouts, agent.execution_timeout))
    bridge = RoutedBridge(agent) if agent_resolver or has_own_run(agent, ADKAgent) else agent.bridge
    dependencies = route_options.pop("dependencies", None) or ()
    identifies = agent.has_user_id_extractor or agent_resolver is not None
    is_open = bool(dependencies) or (extract_state_from_request is not None and identifies)
    if (authorize or dependencies) and not identifies:
        logger.warning(_SHARED_USER, path)
    authorizer = authorize or (_allow_any_actor if is_open else None)
    runtime = build_runtime(settings, {_AGENT_NAME: bridge}, serves_others=authorizer is not None, renders_tools=True)
    guard = Guard(
        authorizer,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        cors="auto",
    )
    identity = RequestIdentity(agent, extract, agent_resolver)
    endpoints = ADKEndpoints(runtime, guard, identity.config(), HandlerContext(), _AGENT_NAME)
    routers = [
        _run_routes(endpoints, identity, guard, path, route_options),
        _state_routes(runtime, identity, guard),
    ]
    include_routers(app, routers, runtime, guard, dependencies=dependencies)
    return runtime


def create_adk_app(
    agent: ADKAgent,
    path: str = "/",
    extract_headers: list[str] | None = None,
    extract_state_from_request: StateExtractor | None = None,
    agent_resolver: AgentResolver | None = None,
    **options: Any,
) -> FastAPI:
    """Return an app that serves the agent. The options are those of `add_adk_fastapi_endpoint`. Raises: ConfigError, ValueError."""
    app = FastAPI(title="ADK agent")
    app.state.ambient = add_adk_fastapi_endpoint(
        app, agent, path, extract_headers, extract_state_from_request, agent_resolver, **options
    )
    return app


def make_extract_headers(headers_to_extract: Sequence[str]) -> StateExtractor:
    """Return an extractor that puts these headers under `headers` in the state, `x-user-id` as `user_id`. Clients cannot set them."""

    async def extract(request: Request, run_input: RunAgentInput) -> dict[str, Any]:
        values = {_header_key(name): request.headers.get(name) for name in headers_to_extract}
        sent = as_object(as_object(run_input.state).get("headers"))
        headers = {key: value for key, value in (sent | values).items() if value is not None}
        return {"headers": headers} if headers or sent else {}

    return extract


def resolve_agent_from_message_history(
    messages: Sequence[Message], agent_registry: Mapping[str, ADKAgent]
) -> ADKAgent | None:
    """Return the agent whose call the newest message answers: the registry's agent with the `name` of the assistant message."""
    answer = messages[-1] if messages else None
    if not isinstance(answer, ToolMessage):
        return None
    for message in reversed(messages[:-1]):
        if isinstance(message, AssistantMessage) and answer.tool_call_id in {c.id for c in message.tool_calls or ()}:
            return agent_registry.get(message.name) if message.name else None
    return None


def _run_routes(
    endpoints: ADKEndpoints, identity: RequestIdentity, guard: Guard, path: str, options: Mapping[str, Any]
) -> APIRouter:
    router = APIRouter(route_class=YieldingRoute)

    async def run_agent(request: Request) -> Response:
        return await endpoints.start_run(request)

    router.add_api_route(path, run_agent, methods=["POST"], route_class_override=AmbientRoute, **options)

    @router.get(f"{path.rstrip('/')}/capabilities")
    async def capabilities(request: Request) -> Response:
        await guard(request)
        prepared = await identity.prepare(_empty_input("capabilities"), request)
        return JsonResponse(prepared.agent.get_capabilities() or {})

    return router


def _state_routes(runtime: ServerRuntime, identity: RequestIdentity, guard: Guard) -> APIRouter:
    router = APIRouter(route_class=YieldingRoute)

    @router.post("/agents/state")
    async def agent_state(body: AgentStateRequest, request: Request) -> Response:
        await guard(request)
        prepared = await identity.prepare(_empty_input(body.threadId), request)
        location = prepared.agent.locate_input(prepared.run_input)
        return JsonResponse(await _read_thread(runtime, ThreadKey(location.app, location.user, location.session)))

    return router


async def _read_thread(runtime: ServerRuntime, key: ThreadKey) -> dict[str, Any]:
    runner = await runtime.ensure_runner()
    try:
        view = await runner.view_thread(key)
    except UnknownThread:
        return {"threadId": key.id, "threadExists": False, "state": {}, "messages": []}
    snapshot = to_agui(await read_messages(runtime, key))
    return {
        "threadId": key.id,
        "threadExists": True,
        "state": view.state.visible_part(HIDDEN),
        "messages": snapshot.model_dump(mode="json", by_alias=True, exclude_none=True)["messages"],
    }


def _choose_extractor(headers: list[str] | None, extract: StateExtractor | None) -> StateExtractor | None:
    if headers is None:
        return extract
    if extract is not None:
        raise ValueError("Pass extract_headers or extract_state_from_request, not both.")
    warnings.warn(
        "extract_headers is deprecated: pass extract_state_from_request=make_extract_headers([…]).",
        DeprecationWarning,
        stacklevel=3,
    )
    return make_extract_headers(headers)


def _visible_part(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if not is_hidden(key, HIDDEN)}


def _header_key(name: str) -> str:
    return name.lower().removeprefix("x-").replace("-", "_")


def _empty_input(thread_id: str) -> RunAgentInput:
    return RunAgentInput(
        thread_id=thread_id, run_id="-", state={}, messages=[], tools=[], context=[], forwarded_props=None
    )


def _limit_timeouts(timeouts: Timeouts, seconds: float) -> Timeouts:
    return dataclasses.replace(timeouts, idle=min(timeouts.idle, seconds), total=min(timeouts.total, seconds))


def _allow_any_actor(request: Request) -> Actor:
    """Authorize every request as far as the guard is concerned: the application identifies the user."""
    return Actor()
