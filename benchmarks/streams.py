"""Many open streams of one server, read with one selector: nothing but `recv` and a clock happens between two chunks."""

from __future__ import annotations

import gc
import selectors
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.client import BLOCK, Response, UnexpectedResponse, connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator


@dataclass(kw_only=True)
class StreamSet:
    """Open streams, read with one selector."""

    responses: list[Response] = field(default_factory=list[Response])
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def open_stream(self, port: int, request: bytes, *, due: int | None = None) -> None:
        """Send a request. Its response counts from now, or from when it was due."""
        sock = connect(port)
        response = Response(sent_at=due or time.monotonic_ns())
        sock.sendall(request)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, response)
        self.responses.append(response)

    @property
    def open_count(self) -> int:
        return len(self.selector.get_map())

    def read(self, until: int) -> None:
        """Read until that time, or until all streams have ended."""
        while (left := until - time.monotonic_ns()) > 0 and self.selector.get_map():
            for key, _ in self.selector.select(left / 1e9):
                self._receive(key)

    def read_until_fewer(self, count: int, seconds: float = 120.0) -> None:
        """Read until fewer than so many streams are open."""
        deadline = time.monotonic() + seconds
        while self.open_count >= count:
            if time.monotonic() > deadline:
                raise UnexpectedResponse(f"{self.open_count} streams did not end within {seconds:g} s")
            for key, _ in self.selector.select(1.0):
                self._receive(key)

    def read_until_marked(self, marker: bytes, seconds: float = 120.0) -> None:
        """Read until each stream has received the marker after what it had before. They stay open."""
        deadline = time.monotonic() + seconds
        missing = {id(key.data): b"" for key in self.selector.get_map().values()}
        while missing:
            if time.monotonic() > deadline:
                raise UnexpectedResponse(f"{len(missing)} streams without {marker!r} after {seconds:g} s")
            for key, _ in self.selector.select(1.0):
                self._receive(key)
                response: Response = key.data
                if (tail := missing.pop(id(response), None)) is not None:
                    tail = tail[-len(marker) :] + response.chunks[-1][1]
                    if marker not in tail:
                        missing[id(response)] = tail

    def read_until_answered(self, seconds: float = 120.0) -> None:
        """Read until each stream has received something. They stay open."""
        deadline = time.monotonic() + seconds
        while silent := sum(not response.chunks for response in self.responses):
            if time.monotonic() > deadline:
                raise UnexpectedResponse(f"{silent} streams without an answer after {seconds:g} s")
            self.read(time.monotonic_ns() + 100_000_000)

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            self._close(key)
        self.selector.close()

    def _receive(self, key: selectors.SelectorKey) -> None:
        sock: socket.socket = key.fileobj  # pyright: ignore[reportAssignmentType]  we registered sockets
        response: Response = key.data
        chunk = sock.recv(BLOCK)
        if not chunk or response.add(chunk):
            self._close(key)

    def _close(self, key: selectors.SelectorKey) -> None:
        sock: socket.socket = key.fileobj  # pyright: ignore[reportAssignmentType]
        self.selector.unregister(sock)
        sock.close()


@contextmanager
def open_streams() -> Generator[StreamSet]:
    """Return an empty set of streams. The client collects no garbage meanwhile, and closes what is left at the end."""
    streams = StreamSet()
    gc.collect()
    gc.disable()
    try:
        yield streams
    finally:
        gc.enable()
        streams.close()
