"""Configuration of a RemoteBridge, validated once on creation: URL, headers, timeouts and limits."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ambient_runner.errors import ConfigError
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from ambient_runner.runs.loop_detection import VIA
from ambient_runner.runs.run import Run

__all__ = ["Headers", "RemoteLimits", "RemoteTimeouts", "check_headers", "check_url", "secret_values"]

Headers = Mapping[str, str] | Callable[[Run], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of every request, or a function that returns the headers of one run."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")
_RESERVED_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"),
        VIA.lower(),
    }
)
_SECRET_HEADER_NAME = re.compile(r"auth|cookie|credential|key|password|secret|session|token", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteTimeouts:
    """Seconds to wait for the other server."""

    connect: float = 10.0
    """For a connection, and for the response to a stop."""
    answer: float = 60.0
    """For the start of the response."""
    idle: float = 600.0
    """Between two chunks of the response; keep-alives count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteLimits:
    """Limits in bytes on what the other server sends."""

    event: int = MAX_EVENT_BYTES
    """Size of one event. A larger one is dropped."""
    run: int = 1 << 30
    """Size of one run's response. A run that exceeds it fails."""


def check_url(url: str) -> str:
    """Return the URL if it is valid. Raises: ConfigError."""
    try:
        parts = urlsplit(url)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigError(f"{url!r} is not a URL. Write http://host:port/path.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("Do not put credentials into the URL of a remote agent. Pass them in `headers`.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_a_number or parts.fragment:
        raise ConfigError(f"{url!r} is not the URL of an AG-UI server. Write http://host:port/path.")
    return url


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers. Raises: ConfigError, which names the header and never its value."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid header name.")
        if name.lower() in _RESERVED_HEADERS:
            raise ConfigError(f"The header {name} is set by the HTTP client. Remove it from `headers`.")
        if not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"The value of the header {name} contains characters that are not allowed in a header.")
    return dict(headers)


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """Return the values to redact: those of headers whose name suggests a credential, with and without the scheme."""
    values = [value for name, value in headers.items() if _SECRET_HEADER_NAME.search(name)]
    return [form for value in values for form in (value, value.partition(" ")[2]) if form]
