"""AWS Strands agents, with the names of the package `ag_ui_strands`: a thin layer on the bridge and the server.

    agent = StrandsAgent(strands.Agent(...), name="helper")
    app = create_strands_app(agent)

`docs/agents/strands.md` explains each name.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from ambient_runner.bridges.strands.bridge import StrandsBridge

from ambient_runner.bridges.strands.agent import StrandsAgent  # isort: skip  after the bridge, whose error names the missing package
from ambient_runner.bridges.strands.config import (
    PredictStateMapping,
    StrandsAgentConfig,
    ToolBehavior,
    ToolCallContext,
    ToolResultContext,
    maybe_await,
    normalize_predict_state,
)
from ambient_runner.config import read_settings
from ambient_runner.errors import ConfigError
from ambient_runner.server.app import add_ambient_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.config import Settings
    from ambient_runner.runs.run import Middleware
    from ambient_runner.server.guard import Authorize
    from ambient_runner.server.runtime import ServerRuntime

__all__ = [
    "PredictStateMapping",
    "StrandsAgent",
    "StrandsAgentConfig",
    "StrandsBridge",
    "ToolBehavior",
    "ToolCallContext",
    "ToolResultContext",
    "add_strands_fastapi_endpoint",
    "create_strands_app",
    "maybe_await",
    "normalize_predict_state",
]


def add_strands_fastapi_endpoint(
    app: FastAPI,
    agent: Any,
    path: str = "/",
    *,
    origins: Sequence[str] | None = None,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
    middleware: Sequence[Middleware] = (),
) -> ServerRuntime:
    """Serve the agent at `POST path`, with the other routes of this server below it.

    `agent` is a StrandsAgent or anything its constructor accepts. `origins` are the pages that may call it from a browser, such as
    `http://localhost:3000`; the default is the settings' list. `authorize` returns the Actor of a request; without it only requests from
    this machine are served. `settings` default to those of `ambient.toml` and `AMBIENT_*`.
    Raises: ConfigError.
    """
    strands_agent = agent if isinstance(agent, StrandsAgent) else StrandsAgent(agent)
    return add_ambient_endpoints(
        app,
        agents={strands_agent.name: StrandsBridge(strands_agent)},
        prefix=path,
        settings=_with_origins(settings or read_settings(), origins),
        authorize=authorize,
        middleware=middleware,
    )


def create_strands_app(
    agent: Any,
    path: str = "/",
    *,
    origins: Sequence[str] | None = None,
    settings: Settings | None = None,
    authorize: Authorize | None = None,
) -> FastAPI:
    """Return an app that serves the agent at `POST path` and answers `GET /ping`.

    The options are those of `add_strands_fastapi_endpoint`.
    Raises: ConfigError.
    """
    app = FastAPI(title="Strands agent", docs_url=None, redoc_url=None)
    app.state.ambient = add_strands_fastapi_endpoint(
        app, agent, path, origins=origins, settings=settings, authorize=authorize
    )

    @app.get("/ping")
    async def ping() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "healthy"}

    return app


def _with_origins(settings: Settings, origins: Sequence[str] | None) -> Settings:
    if origins is None:
        return settings
    if "*" in origins:
        raise ConfigError(
            "With the origin `*` any page could call this agent. List the allowed origins, such as http://localhost:3000."
        )
    return dataclasses.replace(settings, allowed_origins=tuple(origins))
