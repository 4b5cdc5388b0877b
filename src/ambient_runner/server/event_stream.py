"""A stream of frames as a bare ASGI response: a tail of the ledger, whoever wrote what is in it.

Live, late, resumed and replayed readers all come through here. One task pumps; the other notices that the client has left, sends pings, and
cuts a reader that has stopped reading. Plain asyncio on the way from batch to socket: nothing awaits per event.
Where the server's own `send` is known (`direct`), a batch is sent from where it is published, and the pump wakes only for the rest: the
end, a snapshot, a reader who does not keep up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response

from ambient_runner.errors import LedgerError, StaleCursor, UnknownThread
from ambient_runner.projections.frames import snapshot_places
from ambient_runner.protocol.encode import PING
from ambient_runner.protocol.events import MessagesSnapshot
from ambient_runner.runs import metrics
from ambient_runner.runs.view_cache import Replay
from ambient_runner.server.direct_send import DIRECT, begin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from ambient_runner.ledger.base import Batch, Tail
    from ambient_runner.projections.frames import Framer
    from ambient_runner.runs.runner import Runner
    from ambient_runner.runs.view_cache import Life
    from ambient_runner.server.direct_send import Begun
    from ambient_runner.server.end_conditions import Until
    from ambient_runner.server.runtime import Service

_TYPES = {"sse": b"text/event-stream; charset=utf-8", "ndjson": b"application/x-ndjson"}
_IDLE_LOOK = 0.05
_CHUNK = 1 << 20


class EventStream(Response):
    """Sends a thread's frames after `after`, until `until` says so, the client leaves, or the server ends it."""

    def __init__(
        self,
        service: Service,
        runner: Runner,
        life: Life,
        framer: Framer,
        *,
        after: int,
        until: Until,
        preface: bytes = b"",
        headers: dict[str, str] | None = None,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(status_code=200, headers=headers)
        self._service = service
        self._runner = runner
        self._life = life
        self._framer = framer
        self._after = after
        self._until = until
        self._preface = preface
        self._on_disconnect = on_disconnect
        self._replay = Replay(runner.views, runner.ledger, life)
        self._pumping = anyio.CancelScope()
        self._tail: Tail | None = None
        self._waiting = False
        self._finishing = False
        self._sent_at = 0.0
        self._sending = False
        self._left = False
        self._direct: Send | None = None
        self._begun: Begun | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers()})
        self._direct = scope.get(DIRECT)
        send = self._direct or send
        self._service.streams.add(self)
        metrics.STREAMS.inc()
        try:
            with self._runner.watching(self._life.key):
                async with anyio.create_task_group() as tasks:
                    # The pump wakes for every batch. In a task of its own it does so without passing through everything that
                    # stands between the server and this response.
                    tasks.start_soon(self._pump_and_leave, send, tasks.cancel_scope)
                    await self._attend(receive, send)
                    self._pumping.cancel()
        finally:
            metrics.STREAMS.dec()
            self._service.streams.discard(self)
        if not self._left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif self._on_disconnect is not None:
            await self._on_disconnect()

    def finish(self) -> None:
        """End the stream once it has sent what there is."""
        self._finishing = True
        if self._tail is not None and self._waiting and not self._tail.ready():
            self._pumping.cancel()

    def _headers(self) -> list[tuple[bytes, bytes]]:
        kept = [pair for pair in self.raw_headers if pair[0] not in {b"content-length", b"content-type"}]
        return [
            *kept,
            (b"content-type", _TYPES[self._framer.form]),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]

    async def _pump_and_leave(self, send: Send, everyone: anyio.CancelScope) -> None:
        with self._pumping:
            await self._pump(send)
        everyone.cancel()

    async def _pump(self, send: Send) -> None:
        if self._preface:
            await self._send(send, self._preface)
        try:
            async with self._runner.ledger.tail(self._life.key, self._after, epoch=self._life.epoch) as tail:
                self._tail = tail
                wait = self._next if self._until.looks else self._wait
                while not self._finishing or tail.ready():
                    batches = await wait(tail)
                    if batches is None or await self._deliver(send, batches):
                        return
        except (UnknownThread, StaleCursor, LedgerError):
            # Erased, no longer retained, or the store is gone: the stream ends here and a resume says which.
            return

    async def _next(self, tail: Tail) -> list[Batch] | None:
        """What comes next, or None when the stream is over."""
        if tail.ready():
            return await tail.next()
        while not self._finishing and not await self._until.now(tail):
            with anyio.move_on_after(_IDLE_LOOK):
                return await self._wait(tail)
        return None

    async def _wait(self, tail: Tail) -> list[Batch]:
        self._waiting = True
        try:
            return await tail.next(self if self._direct else None)
        finally:
            self._waiting = False

    def prepare(self, batch: Batch) -> None:
        """Have the frames of a large batch ready. See `Taker`."""
        self._framer.prepare(batch)

    def take(self, batch: Batch) -> bool:
        """Send a batch that has just been published, if that takes neither more than this nor a wait. See `Taker`."""
        tail, send = self._tail, self._direct
        if (
            tail is None
            or send is None
            or self._finishing
            or batch.first != tail.position + 1
            or self._until.after(batch)
        ):
            return False
        if not self._framer.is_shared(batch) and snapshot_places(batch):
            return False
        tail.position = batch.last
        self._runner.views.grow(self._life, batch)
        frame = self._framer.render(batch, {})
        if frame:
            self._sent_at = time.monotonic()
            self._begun = begin(send({"type": "http.response.body", "body": frame, "more_body": True}))
            self._sending = self._begun is not None
        return not self._sending

    async def _deliver(self, send: Send, batches: list[Batch]) -> bool:
        """Send the batches, about a mebibyte at a time; True when the stream is over."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            await begun
            self._sending = False
        frames: list[bytes] = []
        size = 0
        over = False
        for at, batch in enumerate(batches):
            places = None if self._framer.is_shared(batch) else snapshot_places(batch)
            if places:
                self._grow(batches[: at + 1])  # What the snapshot is made of is in our hands: it need not be read.
            frame = self._framer.render(batch, await self._snapshots(places) if places else {})
            frames.append(frame)
            size += len(frame)
            over = self._until.after(batch)
            if size >= _CHUNK or over:
                await self._send(send, b"".join(frames))
                frames, size = [], 0
            if over:
                return True
        if size:
            await self._send(send, frames[0] if len(frames) == 1 else b"".join(frames))
        self._grow(batches)
        return False

    def _grow(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._runner.views.grow(self._life, batch)

    async def _snapshots(self, places: list[int]) -> dict[int, MessagesSnapshot]:
        found: dict[int, MessagesSnapshot] = {}
        for seq in places:
            view = await self._replay.at(seq)
            found[seq] = MessagesSnapshot(messages=view.transcript.messages())
        return found

    async def _send(self, send: Send, body: bytes) -> None:
        if not body:
            return
        self._sending = True
        self._sent_at = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._sending = False

    async def _attend(self, receive: Receive, send: Send) -> None:
        """Notice the client leaving; ping it when nothing else was sent; cut it when it does not read."""
        settings, now = self._service.settings, time.monotonic
        self._sent_at = now()
        while not self._left:
            patience = settings.slow_reader if self._sending else settings.heartbeat
            with anyio.move_on_after(self._sent_at + patience - now()):
                message = await receive()
                self._left = message["type"] == "http.disconnect"
                continue
            if now() - self._sent_at < patience:
                continue
            if self._sending or not await self._ping(send):
                metrics.SLOW_CUT.inc()
                self._left = True

    async def _ping(self, send: Send) -> bool:
        """Whether the client took it in time: a server may hold it back until what was sent before has been read."""
        self._sent_at = time.monotonic()
        if self._framer.form == "sse":
            with anyio.move_on_after(self._service.settings.slow_reader):
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                return True
            return False
        return True
