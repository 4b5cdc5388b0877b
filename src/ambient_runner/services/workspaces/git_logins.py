"""Which host gets which token. A token belongs to exactly one host, and travels encrypted or not at all off this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ambient_runner.config import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.services.workspaces.clone_sources import Source

__all__ = ["Login", "login_for"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    variable: str
    """The granted variable that holds the token."""
    moved: str
    """The granted variable that names another host for it, as the command line tools of these services call it."""
    host: str
    user: str


_KINDS = (
    _Kind(variable="GITHUB_TOKEN", moved="GH_HOST", host="github.com", user="x-access-token"),
    _Kind(variable="GITLAB_TOKEN", moved="GITLAB_HOST", host="gitlab.com", user="oauth2"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """What git answers when this one place asks who it is."""

    place: str
    """Scheme, host and port: `https://github.com`."""
    user: str
    token: str

    def __repr__(self) -> str:
        return f"Login(place={self.place!r})"


def login_for(source: Source, granted: Mapping[str, str]) -> Login | None:
    """The login that was granted for this very host; None when there is none."""
    if source.scheme != "https" and not (source.scheme == "http" and is_loopback(source.host)):
        return None
    for kind in _KINDS:
        token, host = granted.get(kind.variable, ""), granted.get(kind.moved) or kind.host
        if host.lower().removeprefix("https://").rstrip("/") == source.place and _is_usable(token):
            return Login(place=f"{source.scheme}://{source.place}", user=kind.user, token=token)
    return None


def _is_usable(token: str) -> bool:
    """A line break would let a token say more to git than a password."""
    return bool(token) and token.isprintable()
