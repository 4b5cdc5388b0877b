"""What a RemoteBridge is told, checked once when it is made: the address, the headers, and how long and how much is too much."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ambient_runner.errors import ConfigError
from ambient_runner.protocol.limits import MAX_EVENT
from ambient_runner.runs.loop_detection import VIA
from ambient_runner.runs.run import Run

__all__ = ["Headers", "RemoteLimits", "RemoteTimeouts", "checked_headers", "checked_url", "secret_values"]

Headers = Mapping[str, str] | Callable[[Run], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""What is sent with every run, or a function that says it for one run."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")
_OURS = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"),
        VIA.lower(),
    }
)
_SECRET = re.compile(r"auth|cookie|credential|key|password|secret|session|token", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteTimeouts:
    """Seconds to wait for the other server."""

    connect: float = 10.0
    """For a connection, and for its answer to a stop."""
    answer: float = 60.0
    """For the beginning of its answer."""
    idle: float = 600.0
    """For anything more, a keep-alive included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteLimits:
    """Bytes that are taken from the other server."""

    event: int = MAX_EVENT
    """Of one event. A larger one is passed over."""
    run: int = 1 << 30
    """Of one run. A run that says more is ended."""


def checked_url(url: str) -> str:
    """The URL. Raises: ConfigError."""
    try:
        parts = urlsplit(url)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigError(f"{url!r} is not a URL. Write http://host:port/path.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("Credentials do not belong into the URL of a remote agent: give them in `headers`.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_a_number or parts.fragment:
        raise ConfigError(f"{url!r} is not the URL of an AG-UI server. Write http://host:port/path.")
    return url


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers. Raises: ConfigError, which names the header and never its value."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not the name of a header.")
        if name.lower() in _OURS:
            raise ConfigError(f"The header {name} is set by the connection itself. Leave it out of `headers`.")
        if not _VALUE.fullmatch(value):
            raise ConfigError(f"The value of the header {name} has characters that no header may have.")
    return dict(headers)


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """What must not be seen again: the values of headers that name a credential, and the credential without its scheme."""
    values = [value for name, value in headers.items() if _SECRET.search(name)]
    return [form for value in values for form in (value, value.partition(" ")[2]) if form]
