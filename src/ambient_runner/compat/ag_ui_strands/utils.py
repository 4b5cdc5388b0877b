"""The names of `ag_ui_strands.utils`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from ambient_runner.bridges.strands.url_fetch import DEFAULT_URL_FETCH_POLICY, UrlFetchPolicy, UrlFetchPolicyError
from ambient_runner.compat.ag_ui_strands.endpoint import add_ping, serve_agent
from ambient_runner.config import read_settings
from ambient_runner.strands import InvocationStateProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ambient_runner.config import Settings

__all__ = [
    "DEFAULT_URL_FETCH_POLICY",
    "InvocationStateProvider",
    "UrlFetchPolicy",
    "UrlFetchPolicyError",
    "create_strands_app",
]


def create_strands_app(
    agent: Any,
    path: str = "/",
    ping_path: str | None = "/ping",
    origins: Sequence[str] | None = None,
    auth: Callable[..., Any] | None = None,
    allow_methods: Sequence[str] | None = None,
    allow_headers: Sequence[str] | None = None,
    cors_enabled: bool | None = None,
    invocation_state_provider: InvocationStateProvider | None = None,
    *,
    settings: Settings | None = None,
) -> FastAPI:
    """Return an app that serves the agent at `POST path` and answers `GET ping_path`.

    `auth` is a FastAPI dependency for every route except the ping; without it only this machine is served. `origins` are the pages that may
    call it, `["*"]` for all; the default are those of this machine. With `cors_enabled=False` no CORS request is answered; other origins
    are still refused, unless you add a CORSMiddleware, which then decides. `allow_methods` has no effect. `settings` default to
    `ambient.toml` and `AMBIENT_*`.
    Raises: ConfigError.
    """
    del allow_methods  # the methods of each route are allowed
    app = FastAPI(title=f"AWS Strands - {agent.name}")
    settings = settings or read_settings()
    app.state.ambient = serve_agent(
        app,
        agent,
        path,
        settings=dataclasses.replace(settings, allowed_origins=tuple(origins)) if origins else settings,
        auth=auth,
        invocation_state_provider=invocation_state_provider,
        cors_headers=_cors_headers(cors_enabled, allow_headers),
    )
    if ping_path is not None:
        add_ping(app, ping_path)
    return app


def _cors_headers(cors_enabled: bool | None, allow_headers: Sequence[str] | None) -> Sequence[str] | None:
    """Return the request headers that pages may send; None if no CORS request is answered."""
    if cors_enabled is False:
        return None
    return ("*",) if allow_headers is None else allow_headers
