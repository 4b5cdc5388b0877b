"""The endpoint helper of `ag_ui_langgraph`, on the Runner, the ledger and the streams of this server."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.toolkit.agent_runs import has_own_run
from ambient_runner.compat.ag_ui_langgraph.agent import LangGraphAgent, create_bridge
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.server.app import add_ambient_endpoints

if TYPE_CHECKING:
    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.config import Settings
    from ambient_runner.server.guard import Authorize
    from ambient_runner.server.runtime import ServerRuntime

__all__ = ["add_langgraph_fastapi_endpoint"]


def add_langgraph_fastapi_endpoint(
    app: FastAPI | APIRouter,
    agent: Any,
    path: str = "/",
    *,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    **kwargs: Any,
) -> ServerRuntime:
    """Serve the agent at `POST path`, with the other routes of this server below it.

    `agent` is a LangGraphAgent, or another object with a compiled `graph`, such as CopilotKit's LangGraphAGUIAgent. `settings` and
    `authorize` are those of `add_ambient_endpoints`. Of FastAPI's options for a route, `dependencies` apply to all routes.
    Raises: ConfigError.
    """
    _check_route_options(kwargs)
    prefix = ("/" + path.strip("/")).rstrip("/")

    @app.get(f"{prefix}/health", include_in_schema=False)
    def check_health() -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok", "agent": {"name": agent.name}}

    return add_ambient_endpoints(
        app,
        agents={agent.name: _bridge_for(agent)},
        prefix=prefix,
        settings=(settings or read_settings()).with_all_props(),
        authorize=authorize,
        dependencies=kwargs.get("dependencies") or (),
        cors="auto",
        renders_tools=True,
    )


def _bridge_for(agent: Any) -> PlatformBridge:
    """Return the bridge of the agent's graph. An agent with a `run` of its own is served by that."""
    # A LangGraphAgent, or a wrapper with its attributes.
    if isinstance(getattr(agent, "bridge", None), LangGraphBridge):
        return AGUIBridge(agent) if has_own_run(agent, LangGraphAgent) else agent.bridge
    if getattr(agent, "graph", None) is None:
        raise ConfigError(f"{type(agent).__name__} is not a LangGraphAgent: it has no compiled `graph`.")
    return create_bridge(
        agent.graph,
        getattr(agent, "config", None),
        emit_interrupt_outcome=bool(getattr(agent, "emit_interrupt_outcome", False)),
    )


def _check_route_options(options: dict[str, Any]) -> None:
    """Refuse an option that no route of FastAPI has. Raises: TypeError."""
    known = inspect.signature(APIRouter.post).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"add_langgraph_fastapi_endpoint() got an unexpected keyword argument {unknown[0]!r}")
