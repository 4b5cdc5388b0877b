"""Where a clone may come from. A URL becomes a Source by passing every rule here; git never sees one that did not.

The rules: a scheme that is allowed, no credentials, nothing git or a shell could take for an option, a host that is allowed, and
addresses that are public. The addresses that were looked at are the ones git is told to connect to, so a name cannot change its mind.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import unquote

import anyio
import anyio.to_thread

from ambient_runner.errors import CredentialsInUrl, Forbidden, InvalidInput, ServiceError

__all__ = ["Scheme", "Source", "SourceRules", "without_git"]

Scheme = Literal["https", "http", "ssh", "file"]

_PORTS = {"https": 443, "http": 80, "ssh": 22}
_LONGEST_URL = 2000
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]+"
_URL = re.compile(
    rf"(?P<scheme>[a-z]+)://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?{_HOST}(?::(?P<port>\d{{1,5}}))?/{_PATH}"
)
# Only with a user: `word:…` alone could be meant as anything, a transport of git's such as `ext::` included.
_SCP = re.compile(rf"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@{_HOST}:(?![:-]|//|[0-9]+/){_PATH}")
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^/]*@")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A URL that may be cloned. It holds no credentials, so it can be shown and stored."""

    url: str
    scheme: Scheme
    host: str = ""
    """In lower case, without a port; empty for a local one."""
    port: int = 0
    addresses: tuple[str, ...] = ()
    """What the host's name led to when it was checked; git connects to these."""
    folder: Path | None = None
    """Where a local one is."""

    @property
    def place(self) -> str:
        """Host and port as URLs write them: the port only where it is not the scheme's own."""
        return self.host if self.port == _PORTS.get(self.scheme, 0) else f"{self.host}:{self.port}"


def without_git(url: str) -> str:
    return url.rstrip("/").removesuffix(".git")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRules:
    """What this server clones from. The defaults are for a server that strangers talk to."""

    schemes: tuple[str, ...] = ("https", "ssh")
    hosts: tuple[str, ...] = ()
    """Names of hosts, each with or without a port; empty for all."""
    private: bool = False
    """Whether hosts may be this machine, or in a private network."""
    local: tuple[Path, ...] = ()
    """With the scheme `file`: the folders local repositories may be in; empty for all."""
    never: Path | None = None
    """The folder of all workspaces: nobody clones another's."""

    def parse(self, url: str) -> Source:
        """What the text alone can tell. `checked` asks the network as well.

        Raises: InvalidInput, Forbidden.
        """
        if len(url) > _LONGEST_URL or not url.isprintable() or not url.strip() or url.startswith("-"):
            raise InvalidInput(_unusable(self.schemes))
        scheme = _SCHEME.match(url)
        if scheme and scheme[1].lower() == "file":
            return self._local(unquote(url[len(scheme[0]) :]))
        if not scheme and url.startswith(("/", "./", "../", "~")):
            return self._local(url)
        return self._remote(url)

    async def checked(self, url: str) -> Source:
        """The source, with the addresses it is at.

        Raises: InvalidInput, Forbidden; ServiceError when the host has no address.
        """
        source = await anyio.to_thread.run_sync(self.parse, url)
        if source.folder:
            return source
        addresses = await _addresses(source)
        if not self.private and not all(map(_is_public, addresses)):
            raise Forbidden(
                "That host is inside a private network, and this server does not clone from there unless its operator sets `git.private`."
            )
        return Source(url=source.url, scheme=source.scheme, host=source.host, port=source.port, addresses=addresses)

    def _remote(self, url: str) -> Source:
        match = _URL.fullmatch(url) or (None if "://" in url else _SCP.fullmatch(url))
        if not match:
            raise CredentialsInUrl if _CREDENTIALS.match(url) else InvalidInput(_unusable(self.schemes))
        parts = match.groupdict()
        scheme = self._scheme(parts.get("scheme") or "ssh")
        if parts["user"] and scheme != "ssh":
            raise CredentialsInUrl
        port = int(parts.get("port") or _PORTS[scheme])
        source = Source(url=url, scheme=scheme, host=parts["host"].lower(), port=port)
        if self.hosts and not {source.host, f"{source.host}:{port}"} & {host.lower() for host in self.hosts}:
            raise Forbidden("This server does not clone from that host. Its operator names the hosts it clones from.")
        return source

    def _local(self, path: str) -> Source:
        self._scheme("file")
        if not path.startswith("/") or not path.isprintable():
            raise InvalidInput("A local repository is named by its whole path, beginning with a slash.")
        folder = Path(os.path.realpath(path))  # `resolve` fails for a link to itself
        inside = not self.local or any(folder.is_relative_to(root.resolve()) for root in self.local)
        if not inside or (self.never and folder.is_relative_to(self.never.resolve())):
            raise Forbidden(
                "This server does not clone from that folder: it is a workspace, or not among those it may clone from. Name another."
            )
        return Source(url=folder.as_uri(), scheme="file", folder=folder)

    def _scheme(self, scheme: str) -> Scheme:
        for known in get_args(Scheme):
            if known == scheme and known in self.schemes:
                return known
        raise Forbidden(
            f"This server does not clone from {scheme[:20]}:// URLs. {_send(self.schemes)} "
            f"Its operator allows others with `git.schemes`."
        )


def _unusable(schemes: tuple[str, ...]) -> str:
    return f"That cannot be cloned from. {_send(schemes)}"


def _send(schemes: tuple[str, ...]) -> str:
    return f"Send the URL of a git repository: {' or '.join(schemes)}, a host and a path."


async def _addresses(source: Source) -> tuple[str, ...]:
    host = source.host.strip("[]")
    try:
        found = await anyio.getaddrinfo(host, source.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServiceError("That host has no address. Check the spelling of the URL.") from error
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return ip.is_global and not ip.is_multicast and all(_is_public(str(inner)) for inner in _embedded(ip))


def _embedded(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses an IPv6 one leads to: mapped, 6to4 and NAT64."""
    if isinstance(ip, ipaddress.IPv4Address):
        return []
    nat64 = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None
    return [inner for inner in (ip.ipv4_mapped, ip.sixtofour, nat64) if inner]
