"""The names of `ag_ui_strands.endpoint`, and how its authorization by a FastAPI dependency maps to an Actor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials

from ambient_runner.config import read_settings
from ambient_runner.errors import RunnerError
from ambient_runner.runs.run import Actor
from ambient_runner.server.app import add_ambient_endpoints
from ambient_runner.strands import add_ping, build_strands_agents, invocation_state_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import APIRouter, FastAPI

    from ambient_runner.config import Settings
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.strands import InvocationStateProvider

__all__ = ["add_ping", "add_strands_fastapi_endpoint"]

_USER_IDS = ("user_id", "sub", "id", "username")
"""Attributes of a user that name the owner of its threads, the first that it has."""


def add_strands_fastapi_endpoint(
    app: FastAPI | APIRouter,
    agent: Any,
    path: str,
    *,
    auth: Callable[..., Any] | None = None,
    invocation_state_provider: InvocationStateProvider | None = None,
    settings: Settings | None = None,
    **kwargs: Any,
) -> None:
    """Serve the agent at `POST path`, and the other routes below it. An app with a CORSMiddleware decides which pages may call.

    `auth` is a FastAPI dependency that raises HTTPException to refuse a request; without it only this machine is served. What it returns
    is the owner of the threads: an Actor, a string, or a user with a `user_id`, `sub`, `id` or `username`. If it returns nothing, the owner
    is whoever sends the same Authorization and X-API-Key headers; a request with neither is an error. `dependencies` in `kwargs` run after
    it; other options of `app.post` only describe the route and have no effect. `settings` default to `ambient.toml` and `AMBIENT_*`.
    Raises: ConfigError.
    """
    serve_agent(
        app,
        agent,
        path,
        settings=settings,
        auth=auth,
        invocation_state_provider=invocation_state_provider,
        dependencies=kwargs.get("dependencies", ()),
    )


def serve_agent(
    app: FastAPI | APIRouter,
    agent: Any,
    path: str,
    *,
    settings: Settings | None,
    auth: Callable[..., Any] | None,
    invocation_state_provider: InvocationStateProvider | None,
    dependencies: Sequence[Any] = (),
    cors_headers: Sequence[str] | None = (),
) -> ServerRuntime:
    """Add the routes with the authorization of a FastAPI dependency. Raises: ConfigError."""
    checks = [] if auth is None else [Depends(_keep_result(auth))]
    return add_ambient_endpoints(
        app,
        agents=build_strands_agents(agent),
        prefix=path if path.startswith("/") else f"/{path}",
        settings=(settings or read_settings()).with_all_props(),
        authorize=None if auth is None else _actor_of,
        prepare_run=invocation_state_hook(invocation_state_provider),
        dependencies=[*checks, *dependencies],
        cors="auto",
        cors_headers=cors_headers,
        renders_tools=True,
    )


def _keep_result(auth: Callable[..., Any]) -> Callable[..., Any]:
    """Return a dependency that runs `auth` and keeps its result for `_actor_of`."""

    async def keep(request: Request, result: Any = Depends(auth)) -> None:  # noqa: B008  FastAPI's form
        request.state.ambient_auth = result

    return keep


def _actor_of(request: Request) -> Actor:
    """Return the owner of the request's threads: the user that `auth` returned, else whoever sends the same credentials.

    Raises: RunnerError if neither tells two users apart.
    """
    result = request.state.ambient_auth
    if isinstance(result, Actor):
        return result
    is_unnamed = result is None or isinstance(result, bool | HTTPAuthorizationCredentials) or result == ""
    owner = _hash_credentials(request) if is_unnamed else _user_id(result)
    if not owner:
        raise RunnerError(
            f"`auth` returned {type(result).__name__}, which does not name the owner of the threads. Return an Actor, a string, or a user "
            f"with one of {', '.join(_USER_IDS)}; or return nothing and identify users by the header Authorization or X-API-Key."
        )
    return Actor(owner=owner)


def _user_id(user: Any) -> str:
    """Return the user's id, empty if it has none: the string itself, else the first id among its attributes or members."""
    values = [user] if isinstance(user, str) else [_read_member(user, name) for name in _USER_IDS]
    ids = [str(value) for value in values if isinstance(value, str | int | UUID) and not isinstance(value, bool)]
    return next(filter(None, ids), "")


def _read_member(user: Any, name: str) -> Any:
    return cast("Mapping[str, Any]", user).get(name) if isinstance(user, Mapping) else getattr(user, name, None)


def _hash_credentials(request: Request) -> str:
    """Return a hash of the headers with credentials, both because a proxy may add one of them to all requests; empty without any."""
    credentials = [request.headers.get(name, "") for name in ("authorization", "x-api-key")]
    return hashlib.sha256("\n".join(credentials).encode()).hexdigest()[:32] if any(credentials) else ""
