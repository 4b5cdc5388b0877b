"""AWS Strands agents, in the words of the AWS Strands integration document: a thin layer on our own doors.

    agent = StrandsAgent(strands.Agent(...), name="helper")
    app = create_strands_app(agent)

`docs/agents/strands.md` says what each name means.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from ambient_runner.bridges.strands.bridge import StrandsBridge

from ambient_runner.bridges.strands.agent import StrandsAgent  # isort: skip  the bridge says which package is missing
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
    from ambient_runner.server.runtime import Service

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
) -> Service:
    """Serve the agent at `POST path`, with the other routes of this server below it.

    `agent` is a StrandsAgent or what one is made of. `origins` are the pages that may call it from a browser, such as
    `http://localhost:3000`; by default those of the settings. `authorize` gives the Actor of a request: without it only this machine is
    served. `settings` are read from `ambient.toml` and `AMBIENT_*` when not given.
    Raises: ConfigError.
    """
    served = agent if isinstance(agent, StrandsAgent) else StrandsAgent(agent)
    return add_ambient_endpoints(
        app,
        agents={served.name: StrandsBridge(served)},
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
    """An app that serves the agent at `POST path`, and says at `GET /ping` that it is there.

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
            "Any page could call this agent with `*`. List the origins that may, such as http://localhost:3000."
        )
    return dataclasses.replace(settings, allowed_origins=tuple(origins))
