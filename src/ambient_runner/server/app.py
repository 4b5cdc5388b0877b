"""Wiring: our routes on an app, ours or anyone's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from ambient_runner.bridges.agent_host import Hosted
from ambient_runner.config import Settings, read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.projections.redaction import Secrets
from ambient_runner.server.cors import Cors
from ambient_runner.server.error_responses import http_refusal
from ambient_runner.server.guard import Authorize, Guard
from ambient_runner.server.platform import Platform
from ambient_runner.server.routes.feedback import feedback_routes
from ambient_runner.server.routes.platform import platform_routes
from ambient_runner.server.routes.runs import run_routes
from ambient_runner.server.routes.status import status_routes
from ambient_runner.server.routes.threads import thread_routes
from ambient_runner.server.runtime import Service
from ambient_runner.telemetry import tracing_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from fastapi import Request, Response

    from ambient_runner.bridges.base import PlatformBridge, PlatformContext
    from ambient_runner.runs.run import Middleware, Run
    from ambient_runner.services.credentials import Credentials
    from ambient_runner.services.mcp.config import ThreadServers

__all__ = ["add_ambient_endpoints", "create_app", "service_of"]


def add_ambient_endpoints(
    app: FastAPI,
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
) -> Service:
    """Add every route to an app, under any prefix. The first agent is also the default one.

    `bridge` is one agent called `default`; `agents` are several by name. `authorize` gives the Actor of a request: without it only this
    machine is served. `settings` are read from `ambient.toml` and `AMBIENT_*` when not given. `middleware` wraps every run, the first
    one outermost; set-up and what a bridge brings itself are inside.
    `credentials` gives the variables that child processes of a run may have; `mcp` a thread's own MCP servers, in the shape of a
    `.mcp.json`; `custom_tools` go to bridges that take tools. `context` replaces what the platform says to a run's adapter. `secrets` are
    the server's own when a log looks for them too.
    Raises: ConfigError.
    """
    settings = settings or read_settings()
    prefix = _path(prefix)
    service = service_of(
        settings,
        _named(bridge, agents or {}),
        context=context,
        middleware=middleware,
        credentials=credentials,
        mcp=mcp,
        custom_tools=custom_tools,
        secrets=secrets,
    )
    guard = Guard(authorize, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
    app.include_router(run_routes(service, guard, bare=bool(prefix)), prefix=prefix)
    doors = (thread_routes(service, guard), status_routes(service, guard), feedback_routes(service, guard))
    for routes in (*doors, *platform_routes(service, guard)):
        app.include_router(routes, prefix=prefix)
    if settings.allowed_origins:
        app.add_middleware(Cors, origins=settings.allowed_origins, prefix=prefix, headers=settings.pass_headers)
    wrap_lifespan(app, service)
    return service


def service_of(
    settings: Settings,
    bridges: Mapping[str, PlatformBridge],
    *,
    context: Callable[[Run], PlatformContext] | None = None,
    middleware: Sequence[Middleware] = (),
    credentials: Credentials | None = None,
    mcp: ThreadServers | None = None,
    custom_tools: Sequence[Any] = (),
    secrets: Secrets | None = None,
) -> Service:
    """A server without its routes; the arguments are those of `add_ambient_endpoints`. Raises: ConfigError."""
    platform = Platform(
        settings,
        {name: one.capabilities() for name, one in bridges.items()},
        secrets or Secrets(settings.secrets),
        credentials=credentials,
        mcp=mcp,
        custom_tools=custom_tools,
    )
    context, kept, idle = context or platform.context, settings.adapters_kept, settings.adapter_idle
    return Service(
        settings,
        {name: Hosted(name, one, context=context, kept=kept, idle=idle) for name, one in bridges.items()},
        middleware=(*middleware, platform.setup),
        platform=platform,
        tracing=tracing_of(settings.tracing),
    )


def _path(prefix: str) -> str:
    """The prefix without a slash at its end. Raises: ConfigError when it does not begin with one."""
    if prefix and not prefix.startswith("/"):
        raise ConfigError(f"A path begins with a slash: write {'/' + prefix!r} instead of {prefix!r}.")
    return prefix.rstrip("/")


def _named(bridge: PlatformBridge | None, agents: Mapping[str, PlatformBridge]) -> dict[str, PlatformBridge]:
    """The agents by name. Raises: ConfigError when there is none, or `default` is named twice."""
    if bridge is not None and "default" in agents:
        raise ConfigError("Two agents are called default: the one given as `bridge`, and one in `agents`.")
    bridges = dict(agents) if bridge is None else {"default": bridge, **agents}
    if not bridges:
        raise ConfigError("Give at least one agent: add_ambient_endpoints(app, bridge).")
    return bridges


def create_app(
    settings: Settings,
    agents: Mapping[str, PlatformBridge],
    *,
    authorize: Authorize | None = None,
    secrets: Secrets | None = None,
) -> FastAPI:
    """An app that is only this server: what `ambient serve` runs. Raises: ConfigError."""
    app = FastAPI(title="Ambient Runner", docs_url=None, redoc_url=None)
    app.state.ambient = add_ambient_endpoints(
        app, agents=agents, settings=settings, authorize=authorize, secrets=secrets
    )

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return http_refusal(error)

    return app


def wrap_lifespan(app: FastAPI, service: Service) -> None:
    """Run the service around the app's own lifespan, so that the app may use it in there."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: Any) -> AsyncGenerator[Any, None]:
        async with service.running(), inner(served) as state:
            yield state

    app.router.lifespan_context = lifespan
