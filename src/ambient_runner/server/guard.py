"""Who may come in. Before any body is read: where the request comes from, then who it is.

Without an authorization function only this machine is served: a loopback peer, a loopback `Host`, and nothing that says it was forwarded.
With one, the function decides; missing identity is a denial and a failing function is a 5xx, never anonymous.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import Request

from ambient_runner.config import is_loopback
from ambient_runner.errors import Forbidden, RunnerError, Unauthorized
from ambient_runner.runs.run import Actor

if TYPE_CHECKING:
    from collections.abc import Collection

Authorize = Callable[[Request], Awaitable[Actor | None] | Actor | None]
"""Gives the Actor of a request, or None to deny it; plain or async."""

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


class Guard:
    """Checks every request of our routes and gives its Actor."""

    def __init__(
        self, authorize: Authorize | None = None, *, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        self._authorize = authorize
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, request: Request) -> Actor:
        """The Actor of this request. Raises: Forbidden, Unauthorized."""
        host = _only(request, "host")
        self._check_host(host)
        self._check_origin(request, host)
        if self._authorize is None:
            _require_local(request)
            return Actor()
        return await self._identify(request)

    def _check_origin(self, request: Request, host: str) -> None:
        origin = request.headers.get("origin")
        if origin is None or _is_same_origin(origin, host) or origin in self._origins:
            return
        raise Forbidden(
            f"Pages of {origin[:100]} may not use this server. If they should, list it in AMBIENT_ALLOWED_ORIGINS, or as "
            "`allowed_origins` in ambient.toml."
        )

    def _check_host(self, host: str) -> None:
        if self._authorize is not None and not self._hosts:
            return
        name = _host_name(host)
        if name not in self._hosts and not (self._authorize is None and is_loopback(name)):
            raise Forbidden(
                "This server does not answer to that host name. If it should, list it in AMBIENT_ALLOWED_HOSTS, or as "
                "`allowed_hosts` in ambient.toml."
            )

    async def _identify(self, request: Request) -> Actor:
        assert self._authorize is not None
        answer = self._authorize(request)
        return _identity(await answer if inspect.isawaitable(answer) else answer)


def _identity(answer: object) -> Actor:
    """What the authorization function gave, if it is one: it is someone else's code, so its type is not trusted."""
    if answer is None:
        raise Unauthorized
    if not isinstance(answer, Actor) or not answer.tenant or not answer.owner:
        raise RunnerError("The authorization function must give an Actor with a tenant and an owner, or None.")
    return answer


def _only(request: Request, name: str) -> str:
    values = request.headers.getlist(name)
    if len(values) != 1:
        raise Forbidden(f"Send exactly one {name} header.")
    return values[0]


def _require_local(request: Request) -> None:
    peer = request.client.host if request.client else ""
    if not is_loopback(peer.lower()):
        raise Forbidden("This server answers only this machine. Pass authorize= to serve others.")
    for name in _FORWARDED:
        if name in request.headers:
            raise Forbidden(
                "This server answers only this machine, and the request was forwarded. Pass authorize= to serve others."
            )


def _host_name(host: str) -> str:
    """The name in a Host header, without its port; empty for anything unusual."""
    name, _, port = host.rpartition(":") if _has_port(host) else (host, "", "")
    if port and not (port.isascii() and port.isdigit()):
        return ""
    return name.lower().removeprefix("[").removesuffix("]") if name.startswith("[") else name.lower()


def _has_port(host: str) -> bool:
    return "]:" in host or (":" in host and not host.startswith("["))


def _is_same_origin(origin: str, host: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower() and not parts.path
