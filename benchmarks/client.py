"""A raw socket client. While it measures, it only receives and stores bytes; they are parsed afterwards."""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.texts import DIGITS, build_deltas
from benchmarks.workload import NUMBERED, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BLOCK = 1 << 20
LAST_CHUNK = b"\r\n0\r\n\r\n"
STARTED = b"RUN_STARTED"
_DELTA = re.compile(rb'"TEXT_MESSAGE_CONTENT"[^\n]*?"delta":("(?:[^"\\]|\\.)*")')


class HasPrompt(Protocol):
    """The input that a run is started with."""

    @property
    def prompt(self) -> str: ...


class UnexpectedResponse(Exception):
    """A server did not send the requested events, so its figures are not valid."""


@dataclass(kw_only=True)
class Response:
    """The received bytes, each chunk with its time of arrival in monotonic nanoseconds."""

    sent_at: int
    chunks: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])

    def add(self, chunk: bytes) -> bool:
        """Store a chunk. Return True if it ends the HTTP response."""
        self.chunks.append((time.monotonic_ns(), chunk))
        if len(chunk) >= len(LAST_CHUNK):
            return chunk.endswith(LAST_CHUNK)
        return b"".join(part for _, part in self.chunks[-len(LAST_CHUNK) :]).endswith(LAST_CHUNK)

    @property
    def seconds(self) -> float:
        return (self.chunks[-1][0] - self.sent_at) / 1e9

    def seconds_until(self, marker: bytes) -> float:
        """Return the seconds from the request to the chunk that completed the marker."""
        received = b""
        for arrived_at, chunk in self.chunks:
            received += chunk
            if marker in received:
                return (arrived_at - self.sent_at) / 1e9
        raise UnexpectedResponse(received[:500])

    def body(self) -> bytes:
        """Return the response body without HTTP chunk headers."""
        head, _, rest = b"".join(chunk for _, chunk in self.chunks).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise UnexpectedResponse(head + rest[:500])
        return _decode_chunked(rest)


def _decode_chunked(raw: bytes) -> bytes:
    parts, at = list[bytes](), 0
    while size := int(raw[at : (start := raw.index(b"\r\n", at) + 2)], 16):
        parts.append(raw[start : start + size])
        at = start + size + 2
    return b"".join(parts)


def build_request(
    work: HasPrompt,
    path: str = "/",
    *,
    thread: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    protocol_version: str | None = "1.0",
) -> bytes:
    """Return the HTTP request that starts a run: on a new thread unless one is named, with the prompt as its only message by default.

    Clients before 1.0 declare no version.
    """
    body = json.dumps(
        {
            "threadId": thread or str(uuid.uuid4()),
            "runId": str(uuid.uuid4()),
            **({"protocolVersion": protocol_version} if protocol_version else {}),
            "messages": messages or [{"id": str(uuid.uuid4()), "role": "user", "content": work.prompt}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
    )
    return _build_head("POST", path, {"Content-Type": "application/json", "Content-Length": len(body)}) + body.encode()


def build_get(path: str, headers: Mapping[str, Any] | None = None) -> bytes:
    """Return the HTTP request for an event stream."""
    return _build_head("GET", path, headers or {})


def _build_head(method: str, path: str, headers: Mapping[str, Any]) -> bytes:
    usual = {"Host": "127.0.0.1", "Accept": "text/event-stream", "Connection": "close"}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (usual | dict(headers)).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def connect(port: int) -> socket.socket:
    """Open a connection that sends without delay."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def run_workload(
    port: int, work: HasPrompt, path: str = "/", *, thread: str | None = None, protocol_version: str | None = "1.0"
) -> Response:
    """Run the workload and read its stream to the end. The time to connect is not measured."""
    return read_response(port, build_request(work, path, thread=thread, protocol_version=protocol_version))


def read_response(port: int, request: bytes, *, until: bytes | None = None) -> Response:
    """Send a request and read its response to the end, or until a chunk has completed the marker."""
    with connect(port) as sock:
        response = Response(sent_at=time.monotonic_ns())
        sock.sendall(request)
        while chunk := sock.recv(BLOCK):
            if response.add(chunk) or (until and until in b"".join(part for _, part in response.chunks[-2:])):
                return response
    raise UnexpectedResponse(b"".join(chunk for _, chunk in response.chunks)[-500:])


def count_events(response: Response, work: Workload) -> int:
    """Return the number of events.

    Raises:
        UnexpectedResponse: a delta is missing, duplicated or out of order, or the run did not finish.
    """
    body = response.body()
    if not _has_deltas(body, work) or b'"RUN_FINISHED"' not in body[-1000:]:
        raise UnexpectedResponse(body[-500:])
    return body.count(b"\n\n")


def _has_deltas(body: bytes, work: Workload) -> bool:
    """Return True if every delta is there once and in order. Words may be joined: only the text of other shapes is compared."""
    if work.shape == DIGITS:
        return [int(number) for number in NUMBERED.findall(body)] == list(range(1, work.count + 1))
    return read_text(body) == "".join(build_deltas(work.shape, work.count))


def read_text(body: bytes) -> str:
    """Return the text of all deltas of an event stream."""
    return "".join(json.loads(delta) for delta in _DELTA.findall(body))
