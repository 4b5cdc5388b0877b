"""Add the routes to a FastAPI app, and create an app that has nothing else."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import ForwardsPlatformRequests
from ambient_runner.bridges.recent_models import RecentModels
from ambient_runner.config import (
    MIN_SECRET_LENGTH,
    SPLIT_ADVICE,
    Settings,
    read_settings,
    with_environment_secrets,
)
from ambient_runner.errors import ConfigError, InvalidInput
from ambient_runner.projections.redaction import Secrets
from ambient_runner.protocol.lenient import check_thread_id
from ambient_runner.server.audiences import Audiences
from ambient_runner.server.cors import Cors
from ambient_runner.server.direct_routes import call_routes_directly
from ambient_runner.server.error_responses import http_error_response
from ambient_runner.server.guard import Authorize, Guard
from ambient_runner.server.home_page import home_page_routes
from ambient_runner.server.host_check import HostCheck
from ambient_runner.server.middleware_loader import load_middleware
from ambient_runner.server.platform import Platform
from ambient_runner.server.routes.copilotkit import copilotkit_routes
from ambient_runner.server.routes.events import event_routes
from ambient_runner.server.routes.feedback import feedback_routes
from ambient_runner.server.routes.platform import platform_routes
from ambient_runner.server.routes.runs import run_routes
from ambient_runner.server.routes.status import status_routes
from ambient_runner.server.routes.threads import thread_routes
from ambient_runner.server.routes.tools import tool_routes
from ambient_runner.server.runtime import ServerRuntime
from ambient_runner.server.suggestions import load_suggestions
from ambient_runner.telemetry import tracing_from_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from fastapi import Request, Response
    from fastapi.params import Depends as DependsParam

    from ambient_runner.bridges.base import PlatformBridge, PlatformContext
    from ambient_runner.runs.run import Middleware, Run
    from ambient_runner.server.cors import CorsMode
    from ambient_runner.server.routes.runs import PrepareRun
    from ambient_runner.services.credentials import Credentials
    from ambient_runner.services.mcp.config import ThreadServers

__all__ = ["add_ambient_endpoints", "build_runtime", "create_app", "include_routers"]

logger = logging.getLogger(__name__)

_MODELS_PART = 4
"""The part of `view_cache` that models of messages may take: a fourth."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def add_ambient_endpoints(
    app: FastAPI | APIRouter,
    bridge: PlatformBridge | None = None,
    *,
    agents: Mapping[str, PlatformBridge] | None = None,
    prefix: str = "",
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    context: Callable[[Run], PlatformContext] | None = None,
    middleware: Sequence[Middleware] = (),
    credentials: Credentials | None = None,
    mcp: ThreadServers | None = None,
    custom_tools: Sequence[Any] = (),
    secrets: Secrets | None = None,
    prepare_run: PrepareRun | None = None,
    dependencies: Sequence[DependsParam] = (),
    cors: CorsMode = True,
    cors_headers: Sequence[str] | None = (),
    renders_tools: bool = False,
) -> ServerRuntime:
    """Add every route to an app or a router, under any prefix. The first agent is also the default agent.

    An app also answers CORS preflight requests. With a router the app does that: FastAPI's routers cannot.
    `bridge` is a single agent named `default`; `agents` are several by name. `authorize` returns the Actor of a request; without it only
    requests from this machine are served. `settings` default to `ambient.toml` and `AMBIENT_*`. `middleware` wraps every run, the first
    outermost; inside it run the middleware of the settings, set-up, and the bridges' own.
    `credentials` returns the environment variables for a run's child processes; `mcp` returns a thread's own MCP servers, in the form of a
    `.mcp.json`; `custom_tools` are passed to bridges that accept tools. `context` replaces the PlatformContext that adapters are created
    with. `secrets` are the values to redact, if a log formatter shares them. `prepare_run` returns attributes of a run from its request.
    `dependencies` are FastAPI's, for every route. `cors=False` leaves CORS to the app: no header of it is sent, and the origin of a request
    is not checked; `cors="auto"` does so if the app has a CORSMiddleware. `cors_headers` are request headers that pages may send in
    addition to ours; with None no CORS request is answered. `renders_tools`: if the audience is `safe` by default, tools, CUSTOM events and
    the output of runs are shown whole all the same.
    Raises: ConfigError.
    """
    settings = settings or read_settings()
    prefix = _check_prefix(prefix)
    bridges = _named_agents(bridge, agents or {})
    runtime = build_runtime(
        settings,
        bridges,
        context=context,
        middleware=middleware,
        credentials=credentials,
        mcp=mcp,
        custom_tools=custom_tools,
        secrets=secrets,
        serves_others=authorize is not None,
        renders_tools=renders_tools,
    )
    guard = Guard(authorize, hosts=settings.allowed_hosts, origins=settings.allowed_origins, cors=cors)
    routers = (
        run_routes(runtime, guard, without_slash=bool(prefix), prepare_run=prepare_run),
        event_routes(runtime, guard),
        thread_routes(runtime, guard),
        status_routes(runtime, guard),
        tool_routes(runtime, guard),
        feedback_routes(runtime, guard),
        copilotkit_routes(runtime, guard, load_suggestions(settings, bridges), prepare_run=prepare_run),
        *platform_routes(runtime, guard),
    )
    include_routers(
        app,
        routers,
        runtime,
        guard,
        prefix,
        dependencies=dependencies,
        cors_headers=None if cors_headers is None else (*settings.pass_headers, *cors_headers),
    )
    return runtime


def build_runtime(
    settings: Settings,
    bridges: Mapping[str, PlatformBridge],
    *,
    context: Callable[[Run], PlatformContext] | None = None,
    middleware: Sequence[Middleware] = (),
    credentials: Credentials | None = None,
    mcp: ThreadServers | None = None,
    custom_tools: Sequence[Any] = (),
    secrets: Secrets | None = None,
    serves_others: bool = False,
    renders_tools: bool = False,
) -> ServerRuntime:
    """Return a server without routes; the arguments are those of `add_ambient_endpoints`. Raises: ConfigError.

    `serves_others`: other machines can connect.
    """
    _check_default_thread(settings.default_thread)
    loaded_middleware = load_middleware(settings.middleware)
    # After all modules were imported: `load_dotenv()` at the top of one adds to the environment.
    settings = with_environment_secrets(settings)
    _log_weak_secrets(settings)
    known = secrets or Secrets(settings.secrets, patterns=settings.secret_patterns)
    platform = Platform(
        settings,
        {name: bridge.capabilities() for name, bridge in bridges.items()},
        known.with_values(settings.secrets),
        credentials=credentials,
        mcp=mcp,
        custom_tools=custom_tools,
        remote=[name for name, bridge in bridges.items() if isinstance(bridge, ForwardsPlatformRequests)],
        serves_others=serves_others,
    )
    return ServerRuntime(
        settings,
        _create_hosts(settings, bridges, context or platform.build_context),
        middleware=(*middleware, *loaded_middleware, platform.setup),
        platform=platform,
        audiences=Audiences(settings, bridges, serves_others=serves_others, renders_tools=renders_tools),
        tracing=tracing_from_settings(settings.tracing),
    )


def _create_hosts(
    settings: Settings, bridges: Mapping[str, PlatformBridge], context: Callable[[Run], PlatformContext]
) -> dict[str, AgentHost]:
    recent_models = RecentModels(settings.view_cache // _MODELS_PART)
    return {
        name: AgentHost(
            name,
            bridge,
            context=context,
            max_adapters=settings.adapters_kept,
            idle_timeout=settings.adapter_idle,
            forwarded_props=settings.forwarded_props_for(name),
            recent_models=recent_models,
        )
        for name, bridge in bridges.items()
    }


def _log_weak_secrets(settings: Settings) -> None:
    """Warn about secret variables that redaction cannot protect, or not in every stream."""
    if settings.guessable_secrets:
        _warn_once(
            "Not redacted, because their values are too easy to guess: %s. Choose longer random values.",
            ", ".join(settings.guessable_secrets),
        )
    if settings.short_secrets:
        _warn_once(
            "Not redacted, because their values are shorter than %d characters: %s. Choose longer random values.",
            MIN_SECRET_LENGTH,
            ", ".join(settings.short_secrets),
        )
    if settings.split_secrets:
        _warn_once(
            "Redacted as a whole, but not if an agent streams them in pieces: %s. For each, %s.",
            ", ".join(settings.split_secrets),
            SPLIT_ADVICE,
        )


@cache
def _warn_once(text: str, *args: str | int) -> None:
    """Log a warning once in this process: an app may add endpoints for several agents, and the environment is the same."""
    logger.warning(text, *args)


def _check_prefix(prefix: str) -> str:
    """Return the prefix without a trailing slash. Raises: ConfigError if it does not start with a slash."""
    if prefix and not prefix.startswith("/"):
        raise ConfigError(f"A prefix starts with a slash: write {'/' + prefix!r} instead of {prefix!r}.")
    return prefix.rstrip("/")


def _check_default_thread(thread: str) -> None:
    """Check that requests may use the thread. Raises: ConfigError."""
    if not thread:
        return
    try:
        check_thread_id(thread, "A thread id")
    except InvalidInput as error:
        raise ConfigError(
            f"The setting default_thread must be a thread id, such as main, not {thread[:100]!r}. {error.message}"
        ) from error


def _named_agents(bridge: PlatformBridge | None, agents: Mapping[str, PlatformBridge]) -> dict[str, PlatformBridge]:
    """Return the agents by name. Raises: ConfigError if there is none, or two are named `default`."""
    if bridge is not None and "default" in agents:
        raise ConfigError("Two agents are named default: `bridge`, and one in `agents`. Rename the latter.")
    bridges = dict(agents) if bridge is None else {"default": bridge, **agents}
    if not bridges:
        raise ConfigError("There is no agent. Pass at least one: add_ambient_endpoints(app, bridge).")
    return bridges


def create_app(
    settings: Settings,
    agents: Mapping[str, PlatformBridge],
    *,
    authorize: Authorize | None = None,
    secrets: Secrets | None = None,
) -> FastAPI:
    """Return an app with nothing but our routes, as `ambient serve` runs it. Raises: ConfigError."""
    app = FastAPI(title="Ambient Runner", docs_url=None, redoc_url=None)
    app.state.ambient = add_ambient_endpoints(
        app, agents=agents, settings=settings, authorize=authorize, secrets=secrets
    )

    guard = Guard(authorize, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
    app.include_router(home_page_routes(app.state.ambient, guard))
    app.add_middleware(HostCheck, guard=guard)
    call_routes_directly(app)

    @app.exception_handler(HTTPException)
    async def handle_http_error(request: Request, error: HTTPException) -> Response:
        response = http_error_response(error)
        if error.status_code == 405:
            response.headers["Allow"] = ", ".join(_allowed_methods(app, request))
        return response

    return app


def _allowed_methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods of a path. Starlette lists only those of the first route that has the path."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)
    ]


def include_routers(
    app: FastAPI | APIRouter,
    routers: Sequence[APIRouter],
    runtime: ServerRuntime,
    guard: Guard,
    prefix: str = "",
    *,
    dependencies: Sequence[DependsParam] = (),
    cors_headers: Sequence[str] | None = (),
) -> None:
    """Add the routes, CORS for them if this is an app, and the runtime's lifespan. Without `cors_headers` there is no CORS."""
    for router in routers:
        app.include_router(router, prefix=prefix, dependencies=list(dependencies))
    if isinstance(app, FastAPI) and cors_headers is not None:
        routes = [route for router in routers for route in router.routes]
        app.add_middleware(
            Cors,
            allows=guard.allows_origin,
            check_host=guard.check_host,
            is_left_to=guard.leaves_cors_to,
            routes=routes,
            prefix=prefix,
            headers=cors_headers,
        )
    _wrap_lifespan(app, runtime)


def _wrap_lifespan(app: FastAPI | APIRouter, runtime: ServerRuntime) -> None:
    """Open the runtime around the app's own lifespan, so that the app can use it there."""
    router = app.router if isinstance(app, FastAPI) else app
    inner = router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: Any) -> AsyncGenerator[Any, None]:
        async with runtime.running(), inner(served) as state:
            yield state

    router.lifespan_context = lifespan
