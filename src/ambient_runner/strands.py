"""AWS Strands agents, with the names of the package `ag_ui_strands`: a thin layer on the bridge and the server.

    agent = StrandsAgent(strands.Agent(...), name="helper")
    app = create_strands_app(agent)

`docs/agents/strands.md` explains each name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.strands.bridge import StrandsBridge, is_strands_agent

from ambient_runner.bridges.strands.agent import StrandsAgent  # isort: skip  after the bridge, whose error names the missing package
from ambient_runner.bridges.strands.config import (
    PredictStateMapping,
    StrandsAgentConfig,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    ToolStreamEventContext,
    maybe_await,
    normalize_predict_state,
)
from ambient_runner.bridges.strands.run_input import INVOCATION_STATE
from ambient_runner.bridges.strands.url_fetch import UrlFetchPolicy
from ambient_runner.bridges.toolkit.agent_runs import has_own_run
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.server.app import add_ambient_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.config import Settings
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Middleware, RunAttribute
    from ambient_runner.server.guard import Authorize
    from ambient_runner.server.routes.runs import PrepareRun
    from ambient_runner.server.runtime import ServerRuntime

__all__ = [
    "PredictStateMapping",
    "StrandsAgent",
    "StrandsAgentConfig",
    "StrandsBridge",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "ToolStreamEventContext",
    "UrlFetchPolicy",
    "add_ping",
    "add_strands_fastapi_endpoint",
    "create_strands_app",
    "maybe_await",
    "normalize_predict_state",
]

InvocationStateProvider = Callable[[Request, Any], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
"""Returns values for the agent's tools and hooks from a request and its RunAgentInput."""


def add_strands_fastapi_endpoint(
    app: FastAPI | APIRouter,
    agent: Any,
    path: str = "/",
    *,
    origins: Sequence[str] | None = None,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    middleware: Sequence[Middleware] = (),
    invocation_state_provider: InvocationStateProvider | None = None,
) -> ServerRuntime:
    """Serve the agent at `POST path`, with the other routes of this server below it.

    `agent` is a StrandsAgent or anything its constructor accepts. If it has a tool that the client declares too, the client executes it,
    unless the configuration keeps it here (`client_tools`, `client_may_answer`). `origins` are the pages that may call it from a browser,
    such as `http://localhost:3000`; the default is the settings' list. `authorize` returns the Actor of a request; without it only requests
    from this machine are served. `settings` default to those of `ambient.toml` and `AMBIENT_*`. `invocation_state_provider(request, input)`
    returns values for the agent's tools and hooks.
    Raises: ConfigError.
    """
    return add_ambient_endpoints(
        app,
        agents=build_strands_agents(agent),
        prefix=path,
        settings=_with_origins((settings or read_settings()).with_all_props(), origins),
        authorize=authorize,
        middleware=middleware,
        prepare_run=invocation_state_hook(invocation_state_provider),
        renders_tools=True,
    )


def create_strands_app(
    agent: Any,
    path: str = "/",
    *,
    ping_path: str | None = "/ping",
    origins: Sequence[str] | None = None,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    invocation_state_provider: InvocationStateProvider | None = None,
) -> FastAPI:
    """Return an app that serves the agent at `POST path` and answers `GET ping_path`, unless that is None.

    The options are those of `add_strands_fastapi_endpoint`.
    Raises: ConfigError.
    """
    app = FastAPI(title="Strands agent", docs_url=None, redoc_url=None)
    app.state.ambient = add_strands_fastapi_endpoint(
        app,
        agent,
        path,
        origins=origins,
        settings=settings,
        authorize=authorize,
        invocation_state_provider=invocation_state_provider,
    )
    if ping_path is not None:
        add_ping(app, ping_path)
    return app


def add_ping(app: FastAPI | APIRouter, path: str, **options: Any) -> None:
    """Answer `GET path` with the status `healthy`. `options` are those of FastAPI's `get`."""

    @app.get(path, **options)
    async def ping() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "healthy"}


def build_strands_agents(agent: Any) -> dict[str, PlatformBridge]:
    """Return the agent by its name, as `add_ambient_endpoints` takes it, with the client tools of a StrandsAgent.

    An object that has a `run`, but nothing else of a StrandsAgent, is served as any AG-UI agent. Raises: ConfigError.
    """
    if not is_strands_agent(agent) and has_own_run(agent, StrandsAgent):
        return {getattr(agent, "name", "strands"): AGUIBridge(agent)}
    strands_agent = agent if is_strands_agent(agent) else StrandsAgent(agent)
    rule = strands_agent.config.client_tools
    return {strands_agent.name: StrandsBridge(strands_agent, client_tools="all" if rule is None else rule)}


def invocation_state_hook(provider: InvocationStateProvider | None) -> PrepareRun | None:
    """Return the hook that calls the provider for each request; None without a provider."""
    if provider is None:
        return None

    async def prepare(request: Request, run_input: RunAgentInput) -> dict[RunAttribute[Any], Any]:
        state = await call_hook(provider, request, input_to_agui(run_input))
        if state is not None and not isinstance(state, dict):
            raise TypeError(f"invocation_state_provider returned a {type(state).__name__}. Return a dict or None.")
        return {} if state is None else {INVOCATION_STATE: state}

    return prepare


def _with_origins(settings: Settings, origins: Sequence[str] | None) -> Settings:
    if origins is None:
        return settings
    if "*" in origins:
        raise ConfigError(
            "With the origin `*` any page could call this agent. List the allowed origins, such as http://localhost:3000."
        )
    return dataclasses.replace(settings, allowed_origins=tuple(origins))
