"""Requests and responses on their way through a gateway: which headers pass, and where the key is put in. Pure.

The agent's requests carry a placeholder. Every header and parameter that could carry a key is removed and the real one is added, so the
agent chooses neither the destination nor the key. In what comes back the real key is masked, should a server repeat it.
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "KeyHeaders",
    "KeyMask",
    "UnacceptableRequest",
    "Upstream",
    "error_body",
    "forward_request",
    "forward_response",
]

Headers = list[tuple[bytes, bytes]]

_AUTH_HEADERS = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key"})
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"}
    | {b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_REPLACED = frozenset({b"host", b"expect", b"content-length", b"accept-encoding"})
"""Headers of a request that we set ourselves. Only a body that is not compressed can be searched for the key."""
_KEY_PARAMETER = b"key"
_FORBIDDEN_METHODS = frozenset({b"TRACE", b"TRACK"})
"""Methods whose response repeats the request, with its key."""
_MIN_MASKED = 8
"""Keys shorter than this are not searched for: they would be found everywhere."""


class UnacceptableRequest(Exception):
    """The gateway does not forward this request."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests are forwarded to."""

    host: str
    port: int
    is_tls: bool
    authority: bytes
    prefix: bytes = b""

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """Return the server of a base URL. Raises: ValueError if it is not one, or has a user, a query or a fragment."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("The base URL of a model begins with http:// or https:// and a host.")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("The base URL of a model has no user, password, query or fragment.")
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        authority = parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii")
        prefix = parts.path.rstrip("/").encode()
        return cls(host=parts.hostname, port=port, is_tls=is_tls, authority=authority, prefix=prefix)


class KeyHeaders:
    """The headers that carry the real key, and the placeholder that the agent has in its place."""

    def __init__(self, headers: Mapping[str, str], placeholder: str) -> None:
        self.headers: Headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.placeholder = placeholder.encode()
        self._removed = _AUTH_HEADERS | {name for name, _ in self.headers}

    @property
    def secrets(self) -> list[bytes]:
        """The values to mask: keys as they are sent, and without `Bearer`."""
        values = {part for _, value in self.headers for part in (value, value.rpartition(b" ")[2])}
        return sorted((value for value in values if len(value) >= _MIN_MASKED), key=len, reverse=True)

    def is_carried_by(self, request: h11.Request) -> bool:
        """Return True if the request has the placeholder where a key belongs."""
        values = [value.rpartition(b" ")[2] for name, value in request.headers if name in self._removed]
        values += [value for name, value in _parameters(request.target) if name == _KEY_PARAMETER]
        return bool(self.placeholder) and any(hmac.compare_digest(value, self.placeholder) for value in values)

    def remove_from(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return the headers that neither are meant for a key nor have the placeholder in them."""
        return [(name, value) for name, value in headers if name not in self._removed and not self.is_in(value)]

    def is_in(self, value: bytes) -> bool:
        """Return True if a value contains the placeholder."""
        return bool(self.placeholder) and self.placeholder in value


def forward_request(request: h11.Request, upstream: Upstream, keys: KeyHeaders, *, with_key: bool) -> h11.Request:
    """Return the request for the upstream, with the key put in if asked for. Raises: UnacceptableRequest."""
    if request.method in _FORBIDDEN_METHODS:
        raise UnacceptableRequest("This method is not forwarded.")
    headers = [(b"host", upstream.authority), (b"accept-encoding", b"identity"), *_framing(request)]
    headers += keys.remove_from(_end_to_end(request.headers, _REPLACED))
    headers += keys.headers if with_key else []
    target = upstream.prefix + _clean_target(request.target, keys)
    return h11.Request(method=request.method, target=target, headers=headers)


def forward_response(response: h11.Response, mask: KeyMask) -> h11.Response:
    """Return the response for the agent."""
    is_chunked = any(name == b"transfer-encoding" for name, _ in response.headers)
    replaced = frozenset({b"content-length"} if is_chunked else ())
    headers = [(name, mask.replace(value)) for name, value in _end_to_end(response.headers, replaced)]
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def error_body(status: int, kind: str, message: str) -> bytes:
    """Return an error in the form that the SDKs of Anthropic, OpenAI and Google all understand."""
    error = {"type": kind, "code": status, "status": kind.upper(), "message": message}
    return json.dumps({"type": "error", "error": error}).encode()


class KeyMask:
    """Replaces secrets in a stream of bytes by as many asterisks. Holds back only what may be the beginning of one."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = list(secrets)
        self._held = b""

    def replace(self, value: bytes) -> bytes:
        """Return a whole value without the secrets."""
        for secret in self._secrets:
            value = value.replace(secret, b"*" * len(secret))
        return value

    def feed(self, data: bytes) -> bytes:
        """Return what can be sent of the stream after more data."""
        data = self.replace(self._held + data)
        held = max((_overlap(data, secret) for secret in self._secrets), default=0)
        cut = len(data) - held
        self._held = data[cut:]
        return data[:cut]

    def flush(self) -> bytes:
        """Return the rest at the end of the stream."""
        rest, self._held = self._held, b""
        return rest


def _overlap(data: bytes, secret: bytes) -> int:
    """Return the length of the longest end of the data that a secret begins with."""
    return next((size for size in range(min(len(data), len(secret) - 1), 0, -1) if data.endswith(secret[:size])), 0)


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], replaced: frozenset[bytes]) -> Headers:
    """Return the headers that are not for this connection only, without those that are replaced."""
    pairs = list(headers)
    named = {word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")}
    dropped = _HOP_BY_HOP | replaced | (named - {b"content-length"})
    return [(name, value) for name, value in pairs if name not in dropped]


def _framing(request: h11.Request) -> Headers:
    """Return the header that says where the body ends, as h11 has read it: chunks win over a length."""
    found = {name: value for name, value in request.headers if name in (b"transfer-encoding", b"content-length")}
    if b"transfer-encoding" in found:
        return [(b"transfer-encoding", b"chunked")]
    return list(found.items())


def _clean_target(target: bytes, keys: KeyHeaders) -> bytes:
    """Return path and query without keys. Raises: UnacceptableRequest for a path that leads out of the base URL."""
    path, _, query = target.partition(b"?")
    segments = re.split(rb"[/\\]", unquote_to_bytes(path))
    if not path.startswith(b"/") or b".." in segments or keys.is_in(path):
        raise UnacceptableRequest("This path is not forwarded.")
    kept = [part for part in query.split(b"&") if part and not _is_key(part, keys)]
    return path + (b"?" + b"&".join(kept) if kept else b"")


def _is_key(parameter: bytes, keys: KeyHeaders) -> bool:
    return unquote_to_bytes(parameter.partition(b"=")[0]) == _KEY_PARAMETER or keys.is_in(unquote_to_bytes(parameter))


def _parameters(target: bytes) -> list[tuple[bytes, bytes]]:
    parts = [part.partition(b"=") for part in target.partition(b"?")[2].split(b"&")]
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in parts]
