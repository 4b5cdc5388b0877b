"""ASGI middleware for an app that is nothing but ours: it calls the endpoints of our routes itself.

FastAPI's router, exit stacks and dependencies take a twentieth of the CPU of a short run, and more of a smaller request. Our endpoints take
a request and the parameters of their path, so they need none of these. The router answers all other requests: those that no route
matches, those of a route of another kind, and all of them once the app has routes of its own or FastAPI traces requests.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.convertors import PathConvertor, StringConvertor
from starlette.middleware import Middleware
from starlette.routing import Route

from ambient_runner.server.error_responses import AmbientRoute, is_exact_path
from ambient_runner.server.routes.base import iterate_routes

if TYPE_CHECKING:
    import re
    from collections.abc import Collection

    from fastapi import FastAPI
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
    """Add the middleware to an app, as the innermost one, whatever is added later."""
    app.user_middleware.append(Middleware(DirectRoutes, served=app))


class DirectRoutes:
    """Calls the endpoint of the route that the router would choose."""

    def __init__(self, app: ASGIApp, *, served: FastAPI) -> None:
        self._app = app
        self._served = served
        self._routes: list[Any] = []
        self._targets: tuple[_Target, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path") and _TELEMETRY not in scope and is_exact_path(scope):
            for target in self._current_targets():
                if scope["method"] in target.methods and (match := target.path.match(scope["path"])):
                    await _call_route(target.route, match.groupdict(), scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _current_targets(self) -> tuple[_Target, ...]:
        """Return the routes to call; none if the app has a route that is not ours."""
        routes = self._served.router.routes
        if routes != self._routes:
            self._routes = list(routes)
            self._targets = _find_targets(self._served)
        return self._targets


async def _call_route(route: AmbientRoute, params: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
    # What the router would add: middleware around it may name requests by their route.
    scope.update({"route": route, "endpoint": route.endpoint, "path_params": params})
    response = await route.call_handler(partial(route.endpoint, **params), Request(scope, receive, send))
    await response(scope, receive, send)


def _find_targets(app: FastAPI) -> tuple[_Target, ...]:
    """Return the app's routes in their order; none if it has one of another kind, which might match before them."""
    found: list[_Target] = []
    for each in iterate_routes(app.router.routes):
        route = getattr(each, "original_route", each)
        if isinstance(route, AmbientRoute) and _has_path_parameters_only(route):
            found.append(_Target(methods=route.methods or (), path=each.path_regex, route=route))
        elif not (isinstance(route, Route) and route.path == app.openapi_url):  # No route of ours has that path.
            return ()
    return tuple(found)


def _has_path_parameters_only(route: AmbientRoute) -> bool:
    """Return True if the endpoint takes a request and strings of its path: then there is nothing for FastAPI to parse."""
    names = set(inspect.signature(route.endpoint).parameters)
    are_strings = all(isinstance(each, StringConvertor | PathConvertor) for each in route.param_convertors.values())
    return are_strings and not route.dependencies and names == {"request", *route.param_convertors}
