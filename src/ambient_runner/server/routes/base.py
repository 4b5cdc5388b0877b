"""YieldingRoute: a route of ours that gives way to a route of the app at the same path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import routing
from starlette.routing import Match, Route

from ambient_runner.server.error_responses import AmbientRoute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.types import Scope

__all__ = ["YieldingRoute", "iterate_routes"]

_OWN_MATCH = "ambient.own_match"
"""Key in a request's scope of what `_find_own_match` has found."""


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
    found = _find_own_match(scope)
    return found is not None and found <= max_wildcard_length


def _find_own_match(scope: Scope) -> int | None:
    """Return the wildcard length of the most specific route of the app's own that matches; None if there is none.

    FastAPI matches our routes several times for one request, so the result is kept in its scope, for this app and path.
    """
    asked = (scope.get("app"), scope.get("root_path"), scope["path"])
    known = scope.get(_OWN_MATCH)
    if known is not None and known[0] == asked:
        return known[1]
    found = min(_own_match_lengths(scope), default=None)
    scope[_OWN_MATCH] = (asked, found)
    return found


def _own_match_lengths(scope: Scope) -> Iterator[int]:
    for route in _own_routes(scope["app"].routes if "app" in scope else ()):
        match, child_scope = route.matches(scope)
        if match is Match.FULL:
            yield _wildcard_length(child_scope)


def _own_routes(routes: Any) -> Iterator[Any]:
    """Yield the routes that the app itself has added, with the prefixes of their routers."""
    for route in iterate_routes([route for route in routes if not _is_our_router(route)]):
        original = getattr(route, "original_route", route)
        if isinstance(original, Route) and not isinstance(original, AmbientRoute):
            yield route


def iterate_routes(routes: Iterable[Any]) -> Iterator[Any]:
    """Return the routes, with those of included routers, which older versions of FastAPI copy into the app."""
    return getattr(routing, "iter_route_contexts", iter)(routes)


def _is_our_router(route: Any) -> bool:
    """Return True for an included router that has only routes of ours. They are most routes of an app, and need not be looked at."""
    router = getattr(route, "original_router", None)
    return router is not None and issubclass(router.route_class, AmbientRoute)


def _wildcard_length(child_scope: Scope) -> int:
    """Return the number of characters of the path that are values of parameters."""
    return sum(len(str(value)) for value in child_scope["path_params"].values())
