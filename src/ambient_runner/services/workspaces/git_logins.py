"""Git logins: a token belongs to exactly one host, and leaves this machine only encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.config import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.services.workspaces.clone_sources import CloneSource

__all__ = ["GitLogin", "login_for"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _GitService:
    variable: str
    """Variable that holds the token."""
    host_variable: str
    """Variable that names another host for the token, as the services' command line tools call it."""
    host: str
    user: str


_GIT_SERVICES = (
    _GitService(variable="GITHUB_TOKEN", host_variable="GH_HOST", host="github.com", user="x-access-token"),
    _GitService(variable="GITLAB_TOKEN", host_variable="GITLAB_HOST", host="gitlab.com", user="oauth2"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GitLogin:
    """User name and token that git sends to one origin."""

    origin: str
    """Scheme, host and port: `https://github.com`."""
    user: str
    token: str

    def __repr__(self) -> str:
        return f"GitLogin(origin={self.origin!r})"


def login_for(source: CloneSource, environment: Mapping[str, str]) -> GitLogin | None:
    """Return the login granted for exactly this host; None if there is none."""
    if source.scheme != "https" and not (source.scheme == "http" and is_loopback(source.host)):
        return None
    for service in _GIT_SERVICES:
        token, host = (
            environment.get(service.variable, ""),
            environment.get(service.host_variable) or service.host,
        )
        if host.lower().removeprefix("https://").rstrip("/") == source.netloc and _is_usable(token):
            return GitLogin(origin=f"{source.scheme}://{source.netloc}", user=service.user, token=token)
    return None


def _is_usable(token: str) -> bool:
    """Return True for a printable token: a line break would let it inject fields into git's credential protocol."""
    return bool(token) and token.isprintable()
