"""YieldingRoute: a route of ours that gives way to a route of the app at the same path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import routing
from starlette.routing import Match, Route

from ambient_runner.server.error_responses import AmbientRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Scope

__all__ = ["YieldingRoute"]


class YieldingRoute(AmbientRoute):
    """A route that does not match a request for which the app has a route of its own, unless that route is a more general one.

    An app may add its routes after ours, and Starlette takes the first that matches.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        if match is Match.FULL and _has_own_route(scope, _wildcard_length(child_scope)):
            return Match.NONE, {}
        return match, child_scope


def _has_own_route(scope: Scope, max_wildcard_length: int) -> bool:
    """Return True if the app has a route of its own for this request whose parameters match no more of the path."""
    for route in _own_routes(scope["app"].routes if "app" in scope else ()):
        match, child_scope = route.matches(scope)
        if match is Match.FULL and _wildcard_length(child_scope) <= max_wildcard_length:
            return True
    return False


def _own_routes(routes: Any) -> Iterator[Any]:
    """Yield the routes that the app itself has added, with the prefixes of their routers."""
    iterate = getattr(routing, "iter_route_contexts", iter)  # older versions copy the routes of a router into the app
    for route in iterate(routes):
        original = getattr(route, "original_route", route)
        if isinstance(original, Route) and not isinstance(original, AmbientRoute):
            yield route


def _wildcard_length(child_scope: Scope) -> int:
    """Return the number of characters of the path that are values of parameters."""
    return sum(len(str(value)) for value in child_scope["path_params"].values())
