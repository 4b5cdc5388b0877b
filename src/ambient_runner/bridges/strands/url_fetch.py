"""Fetch attachments that a client names by URL, within a policy. Blocking; call it in a thread.

A server can reach addresses that its clients cannot: its own ports, the private network, a cloud's metadata service. So only public
addresses are contacted by default, and a connection is made to the very address that was checked, also after a redirect.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit

from ambient_runner.config.addresses import is_contactable_address, is_public_address

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["DEFAULT_URL_FETCH_POLICY", "FetchBudget", "UrlFetchPolicy", "UrlFetchPolicyError", "fetch_url"]

_SCHEMES = frozenset({"http", "https"})
_MAX_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class UrlFetchPolicyError(Exception):
    """The policy does not allow this URL, its address or its size."""


@dataclass(frozen=True)
class UrlFetchPolicy:
    """Limits of what is fetched for clients. Addresses of cloud metadata services are refused in any case.

    Raises: ValueError for a scheme other than http and https.
    """

    allowed_schemes: frozenset[str] = _SCHEMES
    allow_private_networks: bool = False
    """Also contact addresses that are not public."""
    max_bytes: int = 25 * 1024 * 1024
    """Size limit of one attachment."""
    timeout: float = 30.0
    """Seconds without data after which a fetch fails."""
    max_attachments: int = 10
    """Fetches in one run."""
    max_total_bytes: int = 50 * 1024 * 1024
    """Bytes of all fetches in one run."""
    max_total_seconds: float = 60.0
    """Seconds of all fetches in one run."""

    def __post_init__(self) -> None:
        unknown = sorted({scheme.lower() for scheme in self.allowed_schemes} - _SCHEMES)
        if unknown:
            raise ValueError(f"UrlFetchPolicy fetches only http and https, not {', '.join(unknown)}.")


DEFAULT_URL_FETCH_POLICY = UrlFetchPolicy()
"""Fetches public http and https addresses."""


@dataclass
class FetchBudget:
    """The rest of what one run may fetch."""

    policy: UrlFetchPolicy
    attachments_left: int = field(init=False)
    bytes_left: int = field(init=False)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.attachments_left, self.bytes_left = self.policy.max_attachments, self.policy.max_total_bytes
        self.deadline = time.monotonic() + self.policy.max_total_seconds

    def seconds_left(self) -> float:
        """Return the time that the run has left. Raises: UrlFetchPolicyError when there is none."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise UrlFetchPolicyError("The attachments of this run took too long.")
        return seconds

    def step_timeout(self) -> float:
        """Return the time for the next step, such as a read. Raises: UrlFetchPolicyError when there is none."""
        return min(self.seconds_left(), self.policy.timeout)

    def take_attachment(self) -> None:
        """Count a fetch. Raises: UrlFetchPolicyError when there were too many."""
        if self.attachments_left <= 0:
            raise UrlFetchPolicyError(f"A run fetches at most {self.policy.max_attachments} attachments.")
        self.attachments_left -= 1

    def take_bytes(self, count: int) -> None:
        """Count content. Raises: UrlFetchPolicyError when it was too much."""
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise UrlFetchPolicyError(f"A run fetches at most {self.policy.max_total_bytes} bytes.")


def fetch_url(url: str, budget: FetchBudget) -> tuple[bytes, str | None]:
    """Return the content of a URL and its media type.

    Raises: UrlFetchPolicyError if the policy does not allow it; OSError if there is no such content, also if the URL is malformed.
    """
    budget.take_attachment()
    try:
        return _follow_redirects(url, budget)
    except (http.client.InvalidURL, ValueError) as error:
        raise ConnectionError("the URL is malformed") from error
    except http.client.HTTPException as error:
        raise ConnectionError("the response is not HTTP") from error


def _follow_redirects(url: str, budget: FetchBudget) -> tuple[bytes, str | None]:
    for _ in range(_MAX_REDIRECTS + 1):
        found = _fetch_once(url, budget)
        if not isinstance(found, str):
            return found
        url = urljoin(url, found)
    raise UrlFetchPolicyError("The URL is redirected too often.")


def _fetch_once(url: str, budget: FetchBudget) -> tuple[bytes, str | None] | str:
    """Return content and media type, or the location of a redirect."""
    parts = urlsplit(url)
    connection = _open_connection(parts, budget)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request("GET", target, headers={"User-Agent": "ambient-runner", "Accept-Encoding": "identity"})
        with connection.getresponse() as response:
            if response.status in _REDIRECTS and (location := response.getheader("location")):
                return location
            if response.status != 200:
                raise ConnectionError(f"the server answered {response.status}")
            media_type = (response.getheader("content-type") or "").partition(";")[0].strip() or None
            return _read_content(response, budget), media_type
    finally:
        connection.close()


def _read_content(response: http.client.HTTPResponse, budget: FetchBudget) -> bytes:
    limit, content = budget.policy.max_bytes, bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        budget.take_bytes(len(chunk))
        content += chunk
        if len(content) > limit:
            raise UrlFetchPolicyError(f"The attachment is larger than {limit} bytes.")
    return bytes(content)


class _Connection(http.client.HTTPConnection):
    """A connection whose response, also its header, is read within the time of the run."""

    def __init__(self, host: str, port: int, budget: FetchBudget) -> None:
        super().__init__(host, port)
        self._budget = budget

    def response_class(self, sock: socket.socket, *args: Any, **options: Any) -> http.client.HTTPResponse:  # type: ignore[override]
        return http.client.HTTPResponse(cast("Any", _ResponseSocket(sock, self._budget)), *args, **options)


@dataclass(frozen=True)
class _ResponseSocket:
    """The only part of a socket that a response needs."""

    sock: socket.socket
    budget: FetchBudget

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self.sock, self.budget))


class _TimedReader(io.RawIOBase):
    """Sets the timeout before each read, because a server that sends single bytes never exceeds a fixed one."""

    def __init__(self, sock: socket.socket, budget: FetchBudget) -> None:
        self._sock, self._budget = sock, budget
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(self._budget.step_timeout())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _open_connection(parts: SplitResult, budget: FetchBudget) -> http.client.HTTPConnection:
    """Return a connection to an address that the policy allows. Raises: UrlFetchPolicyError, OSError."""
    host, policy = parts.hostname or "", budget.policy
    if parts.scheme.lower() not in {scheme.lower() for scheme in policy.allowed_schemes} or not host:
        raise UrlFetchPolicyError(f"URLs of scheme {parts.scheme[:20]!r} are not fetched.")
    is_secure = parts.scheme.lower() == "https"
    port = parts.port or (443 if is_secure else 80)
    connection = _Connection(host, port, budget)
    sock = socket.create_connection((_allowed_address(host, port, policy), port), budget.step_timeout())
    connection.sock = _wrap_tls(sock, host, budget) if is_secure else sock
    return connection


def _wrap_tls(sock: socket.socket, host: str, budget: FetchBudget) -> ssl.SSLSocket:
    try:
        sock.settimeout(budget.step_timeout())
        return ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    except (OSError, ValueError, UrlFetchPolicyError):
        sock.close()
        raise


def _allowed_address(host: str, port: int, policy: UrlFetchPolicy) -> str:
    """Return an address of the host. Raises: UrlFetchPolicyError if any of its addresses is refused, OSError if it has none."""
    found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    addresses = [ipaddress.ip_address(str(address).partition("%")[0]) for address in found]
    is_allowed = is_contactable_address if policy.allow_private_networks else is_public_address
    if not all(map(is_allowed, addresses)):
        hint = "" if policy.allow_private_networks else " Set allow_private_networks=True to allow it."
        raise UrlFetchPolicyError(f"The URL leads to an address that is not public.{hint}")
    return str(addresses[0])
