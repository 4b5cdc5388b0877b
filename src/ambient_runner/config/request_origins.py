"""Parsers of the host names and web origins that requests may come with, in the form in which the server compares them.

What can be meant in only one way is normalized. Anything else could never match a request, and is refused with the value to write.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress

from ambient_runner.config.parsers import is_loopback, parse_names

__all__ = ["parse_hosts", "parse_origins"]

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#@\\,]*)/?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SPECIAL_ORIGINS = frozenset({"*", "null"})
"""All origins, and the origin of sandboxed frames."""


def parse_origins(value: object) -> tuple[str, ...]:
    """Return origins as browsers send them: in lower case, without a slash at the end and without the default port."""
    return tuple(map(_parse_origin, parse_names(value)))


def parse_hosts(value: object) -> tuple[str, ...]:
    """Return host names in lower case, without port and brackets, as the `Host` header is compared."""
    return tuple(map(_parse_host, parse_names(value)))


def _parse_origin(text: str) -> str:
    origin = _normalize_origin(text)
    if origin is None:
        raise ValueError(
            "a list of origins, each a scheme and a host as in https://app.example.com, or *. "
            f"{text!r} is no origin{_advice(text, _similar_origin(text))}"
        )
    return origin


def _parse_host(text: str) -> str:
    name = _normalize_host(text)
    if name is None:
        raise ValueError(
            "a list of host names without scheme and path, such as agents.example.com. "
            f"{text!r} is no host name{_advice(text, _normalize_host(_authority_of(text)))}"
        )
    return name


def _normalize_origin(text: str) -> str | None:
    """Return the origin as a browser sends it; None if there is no such origin."""
    if text.lower() in _SPECIAL_ORIGINS:
        return text.lower()
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme, authority = match[1].lower(), match[2]
    if scheme not in _DEFAULT_PORTS:  # of an app, such as capacitor://localhost or file://
        return f"{scheme}://{authority}"
    name, port = _split_authority(authority)
    if name is None:
        return None
    host = f"[{name}]" if ":" in name else name
    return f"{scheme}://{host}" if port in {None, _DEFAULT_PORTS[scheme]} else f"{scheme}://{host}:{port}"


def _normalize_host(text: str) -> str | None:
    """Return the host name that a request for this host is compared with; None if it is no host."""
    with suppress(ValueError):
        return str(ipaddress.IPv6Address(text))
    return _split_authority(text.removesuffix("/"))[0]


def _split_authority(text: str) -> tuple[str | None, int | None]:
    """Return the host, in lower case and without brackets, and the port; no host if one of them is malformed."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None, None
    port = None if match[2] is None else int(match[2])
    if port is not None and not 1 <= port <= 65535:
        return None, None
    if not match[1].startswith("["):
        return match[1].lower(), port
    with suppress(ValueError):
        return str(ipaddress.IPv6Address(match[1][1:-1])), port
    return None, None


def _similar_origin(text: str) -> str | None:
    """Return the origin that was probably meant by a URL, or by a host without a scheme."""
    scheme, separator, _ = text.partition("://")
    authority = _authority_of(text)
    if separator:
        return _normalize_origin(f"{scheme}://{authority}")
    name = _split_authority(authority)[0]
    return _normalize_origin(f"{'http' if name and is_loopback(name) else 'https'}://{authority}")


def _authority_of(text: str) -> str:
    """Return the host and the port of a URL whose scheme may be missing, without a user."""
    return re.split(r"[/?#]", text.split("://", 1)[-1], maxsplit=1)[0].rpartition("@")[2]


def _advice(text: str, meant: str | None) -> str:
    """Return what to write instead."""
    if meant is not None:
        return f": write {meant}"
    if "*" in text:
        return ": there are no wildcards, so list each one"
    return "" if text.isascii() else ": write its name as browsers send it, with xn--"
