"""ASGI middleware for an app that is nothing but ours: it calls the endpoints of our routes itself.

FastAPI's router, exit stacks and dependencies take a twentieth of the CPU of a short run, and more of a smaller request. Our endpoints take
a request and the parameters of their path, so they need none of these. The router answers all other requests: those that no route
matches, all of them once anything is added to the app's routes or dependencies, and those that another app has routed here or FastAPI
traces.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.convertors import PathConvertor, StringConvertor
from starlette.middleware import Middleware
from starlette.routing import Route

from ambient_runner.server.error_responses import AmbientRoute, is_exact_path
from ambient_runner.server.routes.base import iterate_routes

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Sequence

    from fastapi import FastAPI
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["DirectRoutes", "call_routes_directly"]

_TELEMETRY = "fastapi.telemetry"
"""Key in the scope of requests that FastAPI traces: it names them by their route."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """A route of ours, as the router would match it."""

    methods: Collection[str]
    path: re.Pattern[str]
    route: AmbientRoute


def call_routes_directly(app: FastAPI) -> None:
    """Add the middleware to an app whose routes are complete, as the innermost one, whatever is added later."""
    app.user_middleware.append(Middleware(DirectRoutes, served=app, routes=tuple(app.router.routes)))


class DirectRoutes:
    """Calls the endpoint of the route that the router would choose."""

    def __init__(self, app: ASGIApp, *, served: FastAPI, routes: Sequence[BaseRoute]) -> None:
        """`routes` are those of the app as we have made it. Once it has others, which may match before or bring dependencies, it is on
        its own."""
        self._app = app
        self._router = served.router
        self._routes = list(routes)
        self._targets = _find_targets(routes, served.openapi_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_direct(scope):
            for target in self._targets:
                if scope["method"] in target.methods and (match := target.path.match(scope["path"])):
                    await _call_route(target.route, match.groupdict(), scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _is_direct(self, scope: Scope) -> bool:
        """Return True if the app is as we have made it, and nothing before it has routed or traces the request."""
        router = self._router
        return (
            not scope.get("root_path")
            and not scope.get("path_params")
            and _TELEMETRY not in scope
            and is_exact_path(scope)
            and router.routes == self._routes
            and not router.dependencies
        )


async def _call_route(route: AmbientRoute, params: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
    # What the router would add: middleware around it may name requests by their route.
    scope.update({"route": route, "endpoint": route.endpoint, "path_params": params})
    response = await route.call_handler(partial(route.endpoint, **params), Request(scope, receive, send))
    await response(scope, receive, send)


def _find_targets(routes: Iterable[BaseRoute], openapi_url: str | None) -> tuple[_Target, ...]:
    """Return the routes in their order; none if there is one of another kind, which might match before them."""
    found: list[_Target] = []
    for each in iterate_routes(routes):
        route = getattr(each, "original_route", each)
        if isinstance(route, AmbientRoute) and not each.dependencies and _has_path_parameters_only(route):
            found.append(_Target(methods=route.methods or (), path=each.path_regex, route=route))
        elif not (isinstance(route, Route) and route.path == openapi_url):  # No route of ours has that path.
            return ()
    return tuple(found)


def _has_path_parameters_only(route: AmbientRoute) -> bool:
    """Return True if the endpoint takes a request and strings of its path: then there is nothing for FastAPI to parse."""
    names = set(inspect.signature(route.endpoint).parameters)
    are_strings = all(isinstance(each, StringConvertor | PathConvertor) for each in route.param_convertors.values())
    return are_strings and names == {"request", *route.param_convertors}
