"""The hosts that an agent may reach through its gateway, and the connections to them.

A host that is allowed by a pattern is contacted at public addresses only. One that is named exactly may also have a private or loopback
address, and only an address that is itself on the list may be one of link-local or metadata services. The connection goes to the very
address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ambient_runner.config.addresses import is_contactable_address, is_public_address

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AddressRefused", "AllowedHosts", "HostAccess", "open_connection_to", "parse_authority"]

DEFAULT_PORT = 443
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PATTERN = re.compile(r"\*|(?:\*\.)?[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]")


class AddressRefused(Exception):
    """The host has only addresses that the agent may not reach."""


class HostAccess(Enum):
    """The addresses of an allowed host that may be contacted."""

    PUBLIC = "public"
    PRIVATE = "private"
    """Public and private ones, and loopback."""
    ANY = "any"


@dataclass(frozen=True, slots=True)
class _Rule:
    host: str
    port: int

    def fits(self, host: str, port: int) -> bool:
        return port == self.port and (
            self.host in ("*", host) or (self.host[0] == "*" and host.endswith(self.host[1:]))
        )


class AllowedHosts:
    """Rules of the form `host`, `host:port`, `*.suffix` or `*`. The port is 443 unless given. Raises: ValueError for anything else."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [_parse_rule(rule) for rule in rules]

    def find_access(self, host: str, port: int) -> HostAccess | None:
        """Return the addresses of a host that may be contacted; None if the host is not allowed."""
        fitting = [rule for rule in self._rules if rule.fits(host, port)]
        if not any(rule.host == host for rule in fitting):
            return HostAccess.PUBLIC if fitting else None
        return HostAccess.ANY if _parse_address(host) else HostAccess.PRIVATE


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Return host and port of `host:port`, the host in lower case. Raises: ValueError if it is malformed."""
    match = _AUTHORITY.fullmatch(text)
    port = int(match[2]) if match and match[2] else default_port
    if match is None or port is None or not 0 < port < 1 << 16:
        raise ValueError("This is not a host with a port.")
    return match[1].lower().rstrip("."), port


async def open_connection_to(
    host: str, port: int, access: HostAccess
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address of a host that may be contacted and answers. Raises: AddressRefused, OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(item[4][0]) for item in found)
    allowed = [address for address in addresses if _is_allowed(address, access)]
    if not allowed:
        raise AddressRefused
    for address in allowed[:-1]:
        try:
            return await asyncio.open_connection(address, port)
        except OSError:
            continue
    return await asyncio.open_connection(allowed[-1], port)


def _parse_rule(rule: str) -> _Rule:
    host, separator, port = rule.lower().rpartition(":")
    if not separator or port.endswith("]"):
        host, port = rule.lower(), str(DEFAULT_PORT)
    if not _PATTERN.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{rule!r} is not a host. Write `host`, `host:port` or `*.suffix`, without a scheme or path.")
    return _Rule(host.rstrip("."), int(port))


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _is_allowed(text: str, access: HostAccess) -> bool:
    address = ipaddress.ip_address(text)
    match access:
        case HostAccess.PUBLIC:
            return is_public_address(address)
        case HostAccess.PRIVATE:
            return is_contactable_address(address)
        case HostAccess.ANY:
            return True
