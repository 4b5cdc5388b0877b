"""Authorize requests before any body is read: first by host, origin and peer, then by identity.

Without an authorization function only this machine is served: a loopback peer, a loopback `Host`, pages of a loopback origin such as a
development server, and no forwarding header. FastAPI's TestClient, which has no socket, counts as this machine. With an authorization
function, the function decides: None denies the request, and a function that fails is a 5xx. A request is never anonymous.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import Request

from ambient_runner.config import is_loopback, parse_hosts, parse_origins
from ambient_runner.errors import ConfigError, Forbidden, RunnerError, Unauthorized
from ambient_runner.runs.run import Actor
from ambient_runner.server.cors import has_cors_middleware

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.server.cors import CorsMode

Authorize = Callable[[Request], Awaitable[Actor | None] | Actor | None]
"""Returns the Actor of a request, or None to deny it; plain or async."""

_TEST_PEER, _TEST_HOST = "testclient", "testserver"
"""Peer and host of Starlette's TestClient. A socket's peer is an address, so no request from the network has this peer."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


class Guard:
    """Checks every request of our routes and returns its Actor."""

    def __init__(
        self,
        authorize: Authorize | None = None,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        cors: CorsMode = True,
    ) -> None:
        """`origins` may contain `*`. If `cors` leaves it to the app to answer CORS requests, every origin is accepted here.

        Raises: ConfigError if an entry of `hosts` or `origins` could never match a request.
        """
        self._authorize = authorize
        self._hosts = _parse_setting("allowed_hosts", parse_hosts, hosts)
        self._origins = _parse_setting("allowed_origins", parse_origins, origins)
        self._cors: CorsMode = cors

    async def __call__(self, request: Request) -> Actor:
        """Return the Actor of this request. Raises: Forbidden, Unauthorized."""
        host = self.check_host(request)
        if not self.leaves_cors_to(request.app):
            self._check_origin(request, host)
        if self._authorize is None:
            _require_local(request)
            return Actor()
        return await self._authorize_request(request)

    def check_host(self, request: Request) -> str:
        """Return the Host header of a request, if it is one of this server. Raises: Forbidden.

        Enough for what every client may know. Without this check a page can make its own name resolve to this machine and read it.
        """
        host = _single_header(request, "host")
        if not _is_test_client(request, host):
            self._check_host_name(host)
        return host

    def allows_origin(self, origin: str) -> bool:
        """Return True if pages of this origin may use the server: listed ones, and without authorization those of this machine."""
        return not self._origins.isdisjoint({origin, "*"}) or (self._authorize is None and _is_loopback_origin(origin))

    def leaves_cors_to(self, app: object) -> bool:
        """Return True if the app decides which pages may call it."""
        return has_cors_middleware(app) if self._cors == "auto" else not self._cors

    def _check_origin(self, request: Request, host: str) -> None:
        origin = request.headers.get("origin")
        if origin is None or _is_same_origin(origin, host) or self.allows_origin(origin):
            return
        raise Forbidden(
            f"Pages of {origin[:100]} may not use this server. To allow them, add the origin to AMBIENT_ALLOWED_ORIGINS, or to "
            "`allowed_origins` in ambient.toml."
        )

    def _check_host_name(self, host: str) -> None:
        if self._authorize is not None and not self._hosts:
            return
        name = _host_name(host)
        if name not in self._hosts and not (self._authorize is None and is_loopback(name)):
            raise Forbidden(
                "This server does not accept requests for that host name. To allow it, add it to AMBIENT_ALLOWED_HOSTS, or to "
                "`allowed_hosts` in ambient.toml."
            )

    async def _authorize_request(self, request: Request) -> Actor:
        assert self._authorize is not None
        answer = self._authorize(request)
        return _check_actor(await answer if inspect.isawaitable(answer) else answer)


def _parse_setting(name: str, parse: Callable[[object], tuple[str, ...]], values: Collection[str]) -> frozenset[str]:
    """Return the values of a setting in the form in which requests are compared: settings that were made in code are not parsed yet."""
    try:
        return frozenset(parse(list(values)))
    except ValueError as error:
        raise ConfigError(f"The setting {name} must be {error}.") from error


def _check_actor(answer: object) -> Actor:
    """Return the Actor that the authorization function returned. The function is the user's code, so its type is checked."""
    if answer is None:
        raise Unauthorized
    if not isinstance(answer, Actor) or not answer.tenant or not answer.owner:
        raise RunnerError("The authorization function must return an Actor with a tenant and an owner, or None.")
    return answer


def _single_header(request: Request, name: str) -> str:
    values = request.headers.getlist(name)
    if len(values) != 1:
        raise Forbidden(f"Send exactly one {name} header.")
    return values[0]


def _require_local(request: Request) -> None:
    peer = _peer(request)
    if peer != _TEST_PEER and not is_loopback(peer):
        raise Forbidden("This server accepts requests only from its own machine. Pass authorize= to serve others.")
    for name in _FORWARDED:
        if name in request.headers:
            raise Forbidden(
                "This server accepts requests only from its own machine, and this one was forwarded. Pass authorize= to serve others."
            )


def _peer(request: Request) -> str:
    return request.client.host.lower() if request.client else ""


def _is_test_client(request: Request, host: str) -> bool:
    return (_peer(request), host) == (_TEST_PEER, _TEST_HOST)


def _is_loopback_origin(origin: str) -> bool:
    """Return True for the origin of a page on this machine, such as `http://localhost:5173`."""
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and origin.count("/") == 2 and is_loopback(_host_name(parts.netloc))


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port; empty for a malformed one."""
    name, _, port = host.rpartition(":") if _has_port(host) else (host, "", "")
    if port and not (port.isascii() and port.isdigit()):
        return ""
    return name.lower().removeprefix("[").removesuffix("]") if name.startswith("[") else name.lower()


def _has_port(host: str) -> bool:
    return "]:" in host or (":" in host and not host.startswith("["))


def _is_same_origin(origin: str, host: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower() and not parts.path
