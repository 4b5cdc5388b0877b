"""Rules for clone URLs. A URL becomes a CloneSource by passing every rule here; git never gets one that did not.

The rules: an allowed scheme, no credentials, nothing git or a shell could take for an option, an allowed host, and public addresses. Git
connects to the addresses that were checked, so DNS rebinding has no effect.
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

from ambient_runner.config.addresses import is_public_address
from ambient_runner.errors import CredentialsInUrl, Forbidden, InvalidInput, ServiceError

__all__ = ["CloneSource", "Scheme", "SourceRules", "strip_git_suffix"]

Scheme = Literal["https", "http", "ssh", "file"]

_PORTS = {"https": 443, "http": 80, "ssh": 22}
_MAX_URL = 2000
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]+"
_URL = re.compile(
    rf"(?P<scheme>[a-z]+)://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?{_HOST}(?::(?P<port>\d{{1,5}}))?/{_PATH}"
)
# Only with a user: `word:…` alone could also be one of git's transports, such as `ext::`.
_SCP = re.compile(rf"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@{_HOST}:(?![:-]|//|[0-9]+/){_PATH}")
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^/]*@")


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneSource:
    """A URL that may be cloned. It holds no credentials, so it can be shown and stored."""

    url: str
    scheme: Scheme
    host: str = ""
    """Lower-case host without port; empty for a local repository."""
    port: int = 0
    addresses: tuple[str, ...] = ()
    """Addresses that the host resolved to when it was checked; git connects to these."""
    directory: Path | None = None
    """Directory of a local repository."""

    @property
    def netloc(self) -> str:
        """Host and port as URLs write them: without the scheme's default port."""
        return self.host if self.port == _PORTS.get(self.scheme, 0) else f"{self.host}:{self.port}"


def strip_git_suffix(url: str) -> str:
    return url.rstrip("/").removesuffix(".git")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRules:
    """Sources this server clones from. The defaults suit a server that is open to untrusted users."""

    schemes: tuple[str, ...] = ("https", "ssh")
    hosts: tuple[str, ...] = ()
    """Allowed hosts, each with or without a port; empty for all."""
    allow_private: bool = False
    """True if hosts may resolve to this machine or a private network."""
    local_roots: tuple[Path, ...] = ()
    """Directories that may hold local repositories (scheme `file`); empty for all."""
    excluded_root: Path | None = None
    """Root directory of the workspaces: no one may clone another's."""

    def parse_url(self, url: str) -> CloneSource:
        """Parse a URL and check it by its text alone. `check_url` resolves the host too.

        Raises: InvalidInput, Forbidden.
        """
        if len(url) > _MAX_URL or not url.isprintable() or not url.strip() or url.startswith("-"):
            raise InvalidInput(_unusable_url_message(self.schemes))
        scheme = _SCHEME.match(url)
        if scheme and scheme[1].lower() == "file":
            return self._parse_local(unquote(url[len(scheme[0]) :]))
        if not scheme and url.startswith(("/", "./", "../", "~")):
            return self._parse_local(url)
        return self._parse_remote(url)

    async def check_url(self, url: str) -> CloneSource:
        """Check a URL and return the source with its addresses.

        Raises: InvalidInput, Forbidden; ServiceError when the host has no address.
        """
        source = await anyio.to_thread.run_sync(self.parse_url, url)
        if source.directory:
            return source
        addresses = await _resolve_addresses(source)
        if not self.allow_private and not all(map(_is_public, addresses)):
            raise Forbidden(
                "The host is in a private network. This server clones from there only if its operator sets `git.private`."
            )
        return CloneSource(
            url=source.url, scheme=source.scheme, host=source.host, port=source.port, addresses=addresses
        )

    def _parse_remote(self, url: str) -> CloneSource:
        match = _URL.fullmatch(url) or (None if "://" in url else _SCP.fullmatch(url))
        if not match:
            raise CredentialsInUrl if _CREDENTIALS.match(url) else InvalidInput(_unusable_url_message(self.schemes))
        parts = match.groupdict()
        scheme = self._check_scheme(parts.get("scheme") or "ssh")
        if parts["user"] and scheme != "ssh":
            raise CredentialsInUrl
        port = int(parts.get("port") or _PORTS[scheme])
        source = CloneSource(url=url, scheme=scheme, host=parts["host"].lower(), port=port)
        if self.hosts and not {source.host, f"{source.host}:{port}"} & {host.lower() for host in self.hosts}:
            raise Forbidden(
                "This server does not clone from that host. Its operator lists the allowed hosts in `git.hosts`."
            )
        return source

    def _parse_local(self, path: str) -> CloneSource:
        self._check_scheme("file")
        if not path.startswith("/") or not path.isprintable():
            raise InvalidInput("Name a local repository by its absolute path.")
        directory = Path(os.path.realpath(path))  # `resolve` fails for a link to itself
        inside = not self.local_roots or any(directory.is_relative_to(root.resolve()) for root in self.local_roots)
        if not inside or (self.excluded_root and directory.is_relative_to(self.excluded_root.resolve())):
            raise Forbidden(
                "This server does not clone from that directory: it is a workspace, or not in an allowed directory. Name another one."
            )
        return CloneSource(url=directory.as_uri(), scheme="file", directory=directory)

    def _check_scheme(self, scheme: str) -> Scheme:
        for known in get_args(Scheme):
            if known == scheme and known in self.schemes:
                return known
        raise Forbidden(
            f"This server does not clone from {scheme[:20]}:// URLs. {_accepted_urls_hint(self.schemes)} "
            f"Its operator allows others with `git.schemes`."
        )


def _unusable_url_message(schemes: tuple[str, ...]) -> str:
    return f"That is not a URL to clone from. {_accepted_urls_hint(schemes)}"


def _accepted_urls_hint(schemes: tuple[str, ...]) -> str:
    return f"Send the URL of a git repository: {' or '.join(schemes)}, a host and a path."


async def _resolve_addresses(source: CloneSource) -> tuple[str, ...]:
    host = source.host.strip("[]")
    try:
        found = await anyio.getaddrinfo(host, source.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServiceError("The host name cannot be resolved. Check the spelling of the URL.") from error
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))


def _is_public(address: str) -> bool:
    return is_public_address(ipaddress.ip_address(address.partition("%")[0]))
