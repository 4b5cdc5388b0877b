"""A client that does not give up: it reconnects after its last event until it has seen the runs it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from tests.e2e.sse import Frame, Truncated, open_stream
from tests.e2e.talk import TERMINALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.e2e.sse import Event, Stream

__all__ = ["CUT", "Client"]

CUT = (Truncated, EOFError, ConnectionError, OSError)
"""Errors of a connection that was lost, in whichever way."""
_BACKOFF = 0.05  # seconds
_UNAVAILABLE = 503


@dataclass
class Client:
    """Reads one thread from any of the servers. `urls` may change while it reads: a server that restarts has another port."""

    thread: str
    urls: Sequence[str]
    turn: int = 0
    """Index of the server to ask next. Every new connection asks another one."""
    frames: list[Frame] = field(default_factory=list[Frame])
    """The frames with an id, over all connections."""
    connections: int = 0
    ended_runs: int = 0
    _moved: anyio.Event = field(default_factory=anyio.Event)

    @property
    def cursor(self) -> str:
        return self.frames[-1].id if self.frames else ""

    async def post(self, body: Event, *, headers: Mapping[str, str] | None = None) -> None:
        """Start a run and read its stream. A stream that breaks is left to `follow`. Raises: AssertionError if the run is refused."""
        try:
            async with open_stream(f"{self._next_url()}/", "POST", body=body, headers=headers) as stream:
                assert stream.status == 200, await stream.body()
                await self._read(stream, runs=self.ended_runs + 1)
        except CUT:
            pass

    async def follow(self, *, runs: int = 1) -> None:
        """Read until so many runs have ended, over as many connections as it takes."""
        while self.ended_runs < runs:
            try:
                await self._read_once(runs)
            except CUT:
                await anyio.sleep(_BACKOFF)

    async def has_received(self, count: int) -> None:
        """Wait for so many frames, or the end of the first run."""
        while len(self.frames) < count and not self.ended_runs:
            await self._moved.wait()

    async def has_ended(self) -> None:
        """Wait for the end of the first run."""
        while not self.ended_runs:
            await self._moved.wait()

    async def _read_once(self, runs: int) -> None:
        headers = {"Last-Event-ID": self.cursor} if self.cursor else {}
        async with open_stream(f"{self._next_url()}/threads/{self.thread}/events", headers=headers) as stream:
            if stream.status == _UNAVAILABLE:
                raise ConnectionError(await stream.body())
            assert stream.status == 200, await stream.body()
            await self._read(stream, runs)

    async def _read(self, stream: Stream, runs: int) -> None:
        self.connections += 1
        while self.ended_runs < runs and (frame := await stream.frame()):
            if frame.id:
                self.frames.append(frame)
                self.ended_runs += frame.type in TERMINALS
                self._moved.set()
                self._moved = anyio.Event()

    def _next_url(self) -> str:
        self.turn += 1
        return self.urls[(self.turn - 1) % len(self.urls)]
