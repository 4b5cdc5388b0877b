"""A raw socket reader. While the clock runs it only receives and keeps; what came is understood afterwards."""

from __future__ import annotations

import json
import socket
import time
import uuid
from dataclasses import dataclass, field

from benchmarks.workload import NUMBERED, Workload

BLOCK = 1 << 20
LAST_CHUNK = b"\r\n0\r\n\r\n"


class WrongAnswer(Exception):
    """A contender did not send what it was asked for, so its figures would mean nothing."""


@dataclass(kw_only=True)
class Answer:
    """What came back, each piece with the monotonic nanosecond it arrived."""

    sent: int
    pieces: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])

    def add(self, piece: bytes) -> bool:
        """Keep a piece; true when it was the last one of a chunked response."""
        self.pieces.append((time.monotonic_ns(), piece))
        if len(piece) >= len(LAST_CHUNK):
            return piece.endswith(LAST_CHUNK)
        return b"".join(part for _, part in self.pieces[-len(LAST_CHUNK) :]).endswith(LAST_CHUNK)

    @property
    def seconds(self) -> float:
        return (self.pieces[-1][0] - self.sent) / 1e9

    def seconds_until(self, marker: bytes) -> float:
        """From the request to the piece that completed the marker."""
        seen = b""
        for moment, piece in self.pieces:
            seen += piece
            if marker in seen:
                return (moment - self.sent) / 1e9
        raise WrongAnswer(seen[:500])

    def body(self) -> bytes:
        """The response body without its HTTP chunk headers."""
        head, _, rest = b"".join(piece for _, piece in self.pieces).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise WrongAnswer(head + rest[:500])
        return _without_chunks(rest)


def _without_chunks(raw: bytes) -> bytes:
    parts, at = list[bytes](), 0
    while size := int(raw[at : (start := raw.index(b"\r\n", at) + 2)], 16):
        parts.append(raw[start : start + size])
        at = start + size + 2
    return b"".join(parts)


def request(work: Workload, path: str = "/") -> bytes:
    """One AG-UI run on a new thread, as HTTP bytes."""
    body = json.dumps(
        {
            "threadId": str(uuid.uuid4()),
            "runId": str(uuid.uuid4()),
            "protocolVersion": "1.0",
            "messages": [{"id": str(uuid.uuid4()), "role": "user", "content": work.prompt}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
    )
    head = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


def connect(port: int) -> socket.socket:
    """A socket that sends at once and can hold a burst."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(port: int, work: Workload, path: str = "/") -> Answer:
    """Run the workload and read its stream to the end. The connection is open before the clock starts."""
    question = request(work, path)
    with connect(port) as sock:
        answer = Answer(sent=time.monotonic_ns())
        sock.sendall(question)
        while piece := sock.recv(BLOCK):
            if answer.add(piece):
                return answer
    raise WrongAnswer(b"".join(piece for _, piece in answer.pieces)[-500:])


def events_of(answer: Answer, work: Workload) -> int:
    """How many events came.

    Raises:
        WrongAnswer: a delta is missing, doubled or out of order, or the run did not finish.
    """
    body = answer.body()
    numbers = [int(number) for number in NUMBERED.findall(body)]
    if numbers != list(range(1, work.count + 1)) or b'"RUN_FINISHED"' not in body[-1000:]:
        raise WrongAnswer(body[-500:])
    return body.count(b"\n\n")
