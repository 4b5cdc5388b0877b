"""Event stream as a bare ASGI response: a tail of the ledger, whichever process writes to it.

Live, late, resumed and replayed readers all use it. One task sends batches; the other detects a disconnect, sends pings, and drops a client
that has stopped reading. Plain asyncio on the way from batch to socket: nothing awaits per event.
If the server's own `send` is exposed (`direct_send.py`), a batch is sent where it is published, and the task wakes only for the rest: the
end, a snapshot, a slow client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response

from ambient_runner.errors import LedgerError, StaleCursor, UnknownThread
from ambient_runner.protocol.encode import PING
from ambient_runner.server import metrics
from ambient_runner.server.direct_send import SERVER_SEND, start_send

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from ambient_runner.ledger.base import Tail
    from ambient_runner.ledger.records import Batch
    from ambient_runner.projections.frames import Framer
    from ambient_runner.projections.known_calls import FrameContext
    from ambient_runner.runs.runner import Runner
    from ambient_runner.runs.view_cache import ThreadEpoch
    from ambient_runner.server.direct_send import SuspendedSend
    from ambient_runner.server.end_conditions import EndCondition
    from ambient_runner.server.runtime import ServerRuntime

_MEDIA_TYPES = {"sse": b"text/event-stream; charset=utf-8", "ndjson": b"application/x-ndjson"}
_IDLE_POLL_INTERVAL = 0.05
"""Seconds between checks of an end condition that has to be polled."""
_CHUNK_BYTES = 1 << 20
"""Bytes of frames that are sent in one piece, at least, while more batches are available."""


class EventStream(Response):
    """Sends a thread's frames after `after`, until `until` is reached, the client disconnects, or the server ends the stream."""

    def __init__(
        self,
        runtime: ServerRuntime,
        runner: Runner,
        thread_epoch: ThreadEpoch,
        framer: Framer,
        *,
        after: int,
        until: EndCondition,
        preface: bytes = b"",
        headers: dict[str, str] | None = None,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(status_code=200, headers=headers)
        self._runtime = runtime
        self._runner = runner
        self._thread_epoch = thread_epoch
        self._framer = framer
        self._after = after
        self._until = until
        self._preface = preface
        self._on_disconnect = on_disconnect
        self._views = runner.reader_views(thread_epoch)
        self._pumping = anyio.CancelScope()
        self._tail: Tail | None = None
        self._is_waiting = False
        self._is_finishing = False
        self._sent_at = 0.0
        self._is_sending = False
        self._is_client_gone = False
        self._server_send: Send | None = None
        self._suspended_send: SuspendedSend | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._response_headers()})
        self._server_send = scope.get(SERVER_SEND)
        send = self._server_send or send
        self._runtime.streams.add(self)
        metrics.STREAMS.inc()
        try:
            with self._runner.track_reader(self._thread_epoch.key, self._until.run):
                async with anyio.create_task_group() as tasks:
                    # This task wakes for every batch. Started here, it does not pass through the middleware between the server
                    # and this response.
                    tasks.start_soon(self._pump_then_cancel, send, tasks.cancel_scope)
                    await self._watch_client(receive, send)
                    self._pumping.cancel()
        finally:
            metrics.STREAMS.dec()
            self._runtime.streams.discard(self)
        if not self._is_client_gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif self._on_disconnect is not None:
            await self._on_disconnect()

    def finish(self) -> None:
        """End the stream once it has sent everything available."""
        self._is_finishing = True
        if self._tail is not None and self._is_waiting and not self._tail.has_next():
            self._pumping.cancel()

    def _response_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [pair for pair in self.raw_headers if pair[0] not in {b"content-length", b"content-type"}]
        return [
            *headers,
            (b"content-type", _MEDIA_TYPES[self._framer.wire_format]),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]

    async def _pump_then_cancel(self, send: Send, scope: anyio.CancelScope) -> None:
        with self._pumping:
            await self._pump_batches(send)
        scope.cancel()

    async def _pump_batches(self, send: Send) -> None:
        if self._preface:
            await self._send_body(send, self._preface)
        try:
            async with self._runner.ledger.tail(
                self._thread_epoch.key, self._after, epoch=self._thread_epoch.epoch
            ) as tail:
                self._tail = tail
                wait = self._next_or_end if self._until.polls else self._wait_for_batches
                while not self._is_finishing or tail.has_next():
                    batches = await wait(tail)
                    if batches is None or await self._send_batches(send, batches):
                        return
        except (UnknownThread, StaleCursor, LedgerError):
            # The thread was erased, is no longer retained, or the store failed: the stream ends, and a resume gets the error.
            return

    async def _next_or_end(self, tail: Tail) -> list[Batch] | None:
        """Return the next batches, or None at the end of the stream."""
        if tail.has_next():
            return await tail.next_batches()
        while not self._is_finishing and not await self._until.is_reached(tail):
            with anyio.move_on_after(_IDLE_POLL_INTERVAL):
                return await self._wait_for_batches(tail)
        return None

    async def _wait_for_batches(self, tail: Tail) -> list[Batch]:
        self._is_waiting = True
        try:
            return await tail.next_batches(self if self._server_send else None)
        finally:
            self._is_waiting = False

    def prepare(self, batch: Batch) -> None:
        """Render the frames of a large batch in advance. See `BatchSink`."""
        self._framer.prepare(batch)

    def try_send(self, batch: Batch) -> bool:
        """Send a batch that has just been published, if that needs no snapshot and no waiting. See `BatchSink`."""
        tail, send = self._tail, self._server_send
        if (
            tail is None
            or send is None
            or self._is_finishing
            or batch.first != tail.position + 1
            or self._until.ends_with(batch)
        ):
            return False
        if self._framer.view_seqs(batch):
            return False
        tail.position = batch.last
        self._views.contribute(batch)
        frame = self._framer.render(batch, {})
        if frame:
            self._sent_at = time.monotonic()
            self._suspended_send = start_send(send({"type": "http.response.body", "body": frame, "more_body": True}))
            self._is_sending = self._suspended_send is not None
        return not self._is_sending

    async def _send_batches(self, send: Send, batches: list[Batch]) -> bool:
        """Send the batches, about a mebibyte at a time; return True at the end of the stream."""
        if self._suspended_send is not None:
            suspended, self._suspended_send = self._suspended_send, None
            await suspended
            self._is_sending = False
        frames: list[bytes] = []
        size = 0
        is_over = False
        for at, batch in enumerate(batches):
            seqs = self._framer.view_seqs(batch)
            if seqs:
                # The view is made of batches this reader has: contribute them, so that nothing is read again.
                self._contribute_batches(batches[: at + 1])
            frame = self._framer.render(batch, await self._read_views(batch, seqs) if seqs else {})
            frames.append(frame)
            size += len(frame)
            is_over = self._until.ends_with(batch)
            if size >= _CHUNK_BYTES or is_over:
                await self._send_body(send, b"".join(frames))
                frames, size = [], 0
            if is_over:
                return True
        if size:
            await self._send_body(send, frames[0] if len(frames) == 1 else b"".join(frames))
        self._contribute_batches(batches)
        return False

    def _contribute_batches(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._views.contribute(batch)

    async def _read_views(self, batch: Batch, seqs: list[int]) -> dict[int, FrameContext]:
        return {seq: self._framer.read_view(batch, seq, await self._views.view_at(seq)) for seq in seqs}

    async def _send_body(self, send: Send, body: bytes) -> None:
        if not body:
            return
        self._is_sending = True
        self._sent_at = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._is_sending = False

    async def _watch_client(self, receive: Receive, send: Send) -> None:
        """Detect a disconnect; send a ping when nothing else was sent; drop a client that does not read."""
        settings, now = self._runtime.settings, time.monotonic
        self._sent_at = now()
        while not self._is_client_gone:
            timeout = settings.slow_reader if self._is_sending else settings.heartbeat
            with anyio.move_on_after(self._sent_at + timeout - now()):
                message = await receive()
                self._is_client_gone = message["type"] == "http.disconnect"
                continue
            if now() - self._sent_at < timeout:
                continue
            if self._is_sending or not await self._send_ping(send):
                metrics.SLOW_CLIENTS_CLOSED.inc()
                self._is_client_gone = True

    async def _send_ping(self, send: Send) -> bool:
        """Return True if the ping was sent in time: a server may hold it back until the client has read what was sent before."""
        self._sent_at = time.monotonic()
        if self._framer.wire_format == "sse":
            with anyio.move_on_after(self._runtime.settings.slow_reader):
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                return True
            return False
        return True
