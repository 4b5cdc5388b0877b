"""Event stream as a bare ASGI response: a tail of the ledger, whichever process writes to it.

Live, late, resumed and replayed readers all use it. The request's task sends batches, a small one waits for a disconnect, and the server's
monitor (`stream_monitor.py`) sends pings and disconnects clients that stopped reading. Plain asyncio on the way from batch to socket:
nothing awaits per event, and an open stream has neither a task group nor a timer.
If the server's own `send` is exposed (`direct_send.py`), a batch is sent where it is published, and the task wakes only for the rest: the
end, a snapshot, a slow client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
from starlette.responses import Response

from ambient_runner.errors import EntriesDropped, LedgerError, Refused, ThreadDamaged
from ambient_runner.ledger.batches import split_batch
from ambient_runner.ledger.records import RUNTIME
from ambient_runner.ledger.thread_damage import DECODE_ERRORS, report_thread_damage
from ambient_runner.protocol.encode import PING
from ambient_runner.protocol.events import is_terminal_line
from ambient_runner.server import metrics
from ambient_runner.server.direct_send import SERVER_CONNECTION, abort_connection, is_closing, start_send
from ambient_runner.server.end_conditions import UntilRunEnds
from ambient_runner.server.stream_start import WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from ambient_runner.ledger.base import Tail
    from ambient_runner.ledger.records import Batch
    from ambient_runner.projections.known_calls import FrameContext
    from ambient_runner.runs.runner import Runner
    from ambient_runner.runs.view_cache import ThreadEpoch
    from ambient_runner.server.direct_send import ServerConnection, SuspendedSend
    from ambient_runner.server.end_conditions import EndCondition
    from ambient_runner.server.runtime import ServerRuntime
    from ambient_runner.server.stream_start import StreamStart

_MEDIA_TYPES = {"sse": b"text/event-stream; charset=utf-8", "ndjson": b"application/x-ndjson"}
_IDLE_POLL_INTERVAL = 0.05
"""Seconds between checks of an end condition that has to be polled."""
_MAX_SHARED_BYTES = 1 << 19
"""Bytes of entries up to which a batch is rendered whole, so that its readers share the frames. A larger one is rendered in parts."""
_MAX_DIRECT_BYTES = 1 << 18
"""Bytes of entries up to which a batch is sent where it is published, and whole."""
_PIECE_BYTES = 1 << 16
"""Bytes that are passed to the server at once. It holds up to two pieces for a client that does not read."""
_CLOSE_TIMEOUT = 1.0
"""Seconds to wait until the server reports that a connection is closed."""

logger = logging.getLogger(__name__)


class _Chunk(NamedTuple):
    """Frames that are sent together. The batches are not kept: a client may take long to read."""

    body: bytes
    last: int
    """The newest entry in it."""
    is_run_open: bool
    """True if it ends within a run."""
    is_end: bool
    """True if it is the last one of the stream."""


class EventStream(Response):
    """Sends a thread's frames from its start on, until `until` is reached, the client disconnects, or the server ends the stream.

    If retention drops entries before this stream has sent them, `restart` returns where to go on after the last one that it has sent.
    Without `restart`, or within a run, the response ends incomplete, so that no client takes it for the whole. The client resumes it, and
    learns what is no longer retained.
    """

    def __init__(
        self,
        runtime: ServerRuntime,
        runner: Runner,
        thread_epoch: ThreadEpoch,
        start: StreamStart,
        *,
        until: EndCondition,
        restart: Callable[[int], Awaitable[StreamStart]] | None = None,
        headers: dict[str, str] | None = None,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(status_code=200, headers=headers)
        self._runtime = runtime
        self._runner = runner
        self._thread_epoch = thread_epoch
        self._until = until
        self._restart = restart
        self._on_disconnect = on_disconnect
        self._begin_at(start)
        self._pumping = anyio.CancelScope()
        self._tail: Tail | None = None
        self._is_waiting = False
        self._is_finishing = False
        self._sent_at = 0.0
        self._is_sending = False
        self._is_client_gone = False
        self._is_incomplete = False
        self._is_end_sent = False
        """True once the end of the body is sent."""
        self._server_send: Send | None = None
        self._suspended_send: SuspendedSend | None = None
        self._unsent_ping: asyncio.Task[None] | None = None

    def _begin_at(self, start: StreamStart) -> None:
        """Send from here on. The start itself is not kept: it has what the client is sent first, which may be large."""
        self._framer = start.framer
        self._views = self._runner.reader_views(self._thread_epoch, start.view)
        self._sent_seq = start.after
        self._is_run_open = start.is_run_open
        """True if what was sent ends within a run, where nothing can announce a gap."""
        self._preface = start.preface
        self._first_batches = list(start.batches)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._response_headers()})
        connection: ServerConnection | None = scope.get(SERVER_CONNECTION)
        if connection is None:
            await self._stream(receive, send)
        else:
            self._server_send = connection.send
            connection.stream = partial(self._stream, send=connection.send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        """Send the body until the stream ends or the client disconnects."""
        self._sent_at = time.monotonic()
        self._runtime.streams.add(self)
        metrics.STREAMS.inc()
        watch = asyncio.get_running_loop().create_task(self._watch_disconnect(receive))
        try:
            with self._runner.track_reader(self._thread_epoch.key, self._until.run), self._pumping:
                await self._pump_batches(send)
        finally:
            watch.cancel()
            if self._unsent_ping is not None:
                self._unsent_ping.cancel()
            metrics.STREAMS.dec()
            self._runtime.streams.discard(self)
        if self._is_incomplete:
            await self._close_connection(receive)
        elif not self._is_client_gone and not self._is_end_sent:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._is_client_gone and self._on_disconnect is not None:
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

    async def _pump_batches(self, send: Send) -> None:
        try:
            await self._pump_over_gaps(send)
        except DECODE_ERRORS:
            report_thread_damage(self._thread_epoch.key, f"an entry after {self._sent_seq} cannot be decoded")
            self._is_incomplete = True
        except ThreadDamaged:
            self._is_incomplete = True  # More was stored than can be read: no client must take this for the whole.
        except (Refused, LedgerError):
            # The thread was erased, or the store failed. A resume gets the error; a client must not take half a run for the whole.
            self._is_incomplete = self._is_run_open or isinstance(self._until, UntilRunEnds)

    async def _pump_over_gaps(self, send: Send) -> None:
        """Send the frames from the start on, and go on after each gap that can be announced. Raises: Refused, LedgerError."""
        while not await self._pump_to_gap(send):
            if self._restart is None or self._is_run_open:
                self._end_incomplete()
                return
            self._begin_at(await self._restart(self._sent_seq))

    async def _pump_to_gap(self, send: Send) -> bool:
        """Send the frames from the start on. Return False where retention has dropped what follows, True at the end.

        Raises: Refused, LedgerError.
        """
        preface, self._preface = self._preface, b""
        batches, self._first_batches = self._first_batches, []
        await self._send_body(send, preface)
        del preface
        try:
            if await self._send_batches(send, batches, kept=[]):
                return True
            key, epoch = self._thread_epoch
            async with self._runner.ledger.tail(key, self._sent_seq, epoch=epoch) as tail:
                self._tail = tail
                try:
                    await self._follow(tail, send)
                finally:
                    self._tail = None  # It refers to this stream: together, only the garbage collector could free them.
        except EntriesDropped:
            return False
        return True

    async def _follow(self, tail: Tail, send: Send) -> None:
        """Send everything that the tail returns. Raises: EntriesDropped, UnknownThread, LedgerError."""
        wait = self._wait_for_batches if self._is_monitored else partial(self._next_or_end, send=send)
        while not self._is_finishing or tail.has_next():
            batches = await wait(tail)
            if batches is None or await self._send_batches(send, batches):
                return

    def _end_incomplete(self) -> None:
        """Leave the response incomplete, and log why."""
        self._is_incomplete = True
        logger.info(
            "A stream of thread %s ends incomplete: retention has dropped entries that its client had not received yet. "
            "The client resumes it with ambient:gap; raise `retain` if that happens often",
            self._thread_epoch.key.id,
        )

    async def _next_or_end(self, tail: Tail, send: Send) -> list[Batch] | None:
        """Return the next batches, or None at the end of the stream. Send pings meanwhile."""
        if tail.has_next():
            return await tail.next_batches(limit=WINDOW_BYTES)
        heartbeat = self._runtime.settings.heartbeat
        while not self._is_finishing and not (self._until.polls and await self._until.is_reached(tail)):
            until_ping = self._sent_at + heartbeat - time.monotonic()
            if until_ping <= 0:
                await self._send_ping(send)
                until_ping = heartbeat
            with anyio.move_on_after(min(_IDLE_POLL_INTERVAL, until_ping) if self._until.polls else until_ping):
                return await self._wait_for_batches(tail)
        return None

    async def _wait_for_batches(self, tail: Tail) -> list[Batch]:
        if not tail.has_next():
            self._views.release()
        self._is_waiting = True
        try:
            return await tail.next_batches(self if self._server_send else None, limit=WINDOW_BYTES)
        finally:
            self._is_waiting = False

    def prepare(self, batch: Batch) -> None:
        """Render the frames of a large batch in advance. See `BatchSink`."""
        self._framer.prepare(batch)

    def try_send(self, batch: Batch) -> bool:
        """Send a batch that has just been published, if that needs no snapshot and no waiting. See `BatchSink`."""
        tail = self._tail
        if (
            tail is None
            or self._is_finishing
            or self._is_sending
            or batch.first != tail.position + 1
            or batch.size > _MAX_DIRECT_BYTES
            # Nearly all batches are deltas of a message: no end, and no snapshot.
            or (batch.text is None and (self._until.ends_with(batch) or self._framer.view_seqs(batch)))
        ):
            return False
        tail.position = batch.last
        self._sent_seq, self._is_run_open = batch.last, _leaves_run_open(batch, self._is_run_open)
        self._views.contribute(batch)
        frame = self._framer.render(batch, {})
        if frame:
            self._send_directly(frame)
        return not self._is_sending

    async def _send_batches(self, send: Send, batches: list[Batch], kept: list[Batch] | None = None) -> bool:
        """Send the batches; return True at the end of the stream. The list is emptied: what is sent is not held while the client reads.

        But for `kept`, which collects the batches since the last view: the next one needs them if retention has dropped them.
        """
        if self._unsent_ping is not None:
            await asyncio.wait((self._unsent_ping,))
        if self._suspended_send is not None:
            suspended, self._suspended_send = self._suspended_send, None
            await suspended
            self._is_sending = False
        queue = deque(batches)
        batches.clear()
        while queue:
            chunk = await self._render_chunk(queue, kept)
            await self._send_body(send, chunk.body, is_last=chunk.is_end)
            self._sent_seq, self._is_run_open = chunk.last, chunk.is_run_open
            if chunk.is_end:
                return True
        return False

    async def _render_chunk(self, batches: deque[Batch], kept: list[Batch] | None) -> _Chunk:
        """Remove batches from the queue until their frames make a piece, and render these."""
        frames: list[bytes] = []
        size, last, is_run_open, is_end = 0, self._sent_seq, self._is_run_open, False
        while batches and size < _PIECE_BYTES and not is_end:
            batch = batches.popleft()
            if batch.size > _MAX_SHARED_BYTES:
                if batch.text is not None:
                    self._views.contribute(batch)  # Whole: its parts have no joined text, and would be decoded.
                batch, rest = split_batch(batch, _PIECE_BYTES)
                batches.extendleft(reversed(rest))
            # The view is made of batches this reader has: contribute them, so that nothing is read again.
            self._views.contribute(batch)
            if kept is not None:
                kept.append(batch)
            frame = self._framer.render(batch, await self._read_views(batch, kept))
            frames.append(frame)
            size += len(frame)
            last, is_run_open = batch.last, _leaves_run_open(batch, is_run_open)
            is_end = self._until.ends_with(batch)
        body = frames[0] if len(frames) == 1 else b"".join(frames)
        return _Chunk(body, last, is_run_open, is_end)

    async def _read_views(self, batch: Batch, kept: list[Batch] | None) -> dict[int, FrameContext]:
        """Return the views that the frames of a batch need. What they contain is not kept."""
        seqs = self._framer.view_seqs(batch)
        views = {seq: self._framer.read_view(batch, seq, await self._views.view_at(seq, kept or ())) for seq in seqs}
        if views and kept is not None:
            del kept[:-1]
        return views

    async def _send_body(self, send: Send, body: bytes, *, is_last: bool = False) -> None:
        """Send frames, a piece at a time: a server copies what it is given, and every piece that a client takes is progress.

        The last ones end the response if the server's own `send` is exposed: it writes them and the end of the body at once, which saves a
        write to the socket. Any other `send` may go on after the end, when a disconnect is reported.
        """
        for start in range(0, len(body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            await self._send_piece(send, body[start:end], is_last=is_last and end >= len(body))

    async def _send_piece(self, send: Send, piece: bytes, *, is_last: bool = False) -> None:
        self._is_sending = True
        self._sent_at = time.monotonic()
        is_end = is_last and self._server_send is not None
        await send({"type": "http.response.body", "body": piece, "more_body": not is_end})
        self._is_sending, self._is_end_sent = False, is_end

    async def _close_connection(self, receive: Receive) -> None:
        """Close the connection. A server whose own `send` is not exposed does that when the response ends incomplete."""
        if self._server_send is not None and abort_connection(self._server_send):
            with anyio.move_on_after(_CLOSE_TIMEOUT):
                while (await receive())["type"] != "http.disconnect":
                    pass

    async def _watch_disconnect(self, receive: Receive) -> None:
        """End the stream when the client disconnects. A request that was read has no other message."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_client_gone = True
        self._pumping.cancel()

    def check_client(self, now: float, interval: float) -> None:
        """Disconnect a client that has not read for too long; send a ping if one is due before the next check. See `MonitoredStream`."""
        settings = self._runtime.settings
        if self._is_sending:
            # The protocol of `ambient serve` may have disconnected the client already, and counted it.
            is_disconnected = self._server_send is not None and is_closing(self._server_send)
            if now - self._sent_at >= settings.slow_reader and not is_disconnected:
                metrics.SLOW_CLIENTS_DISCONNECTED.inc()
                self._is_client_gone = self._is_incomplete = True
                self._pumping.cancel()
        elif self._is_monitored and self._is_waiting and now - self._sent_at + interval > settings.heartbeat:
            self._send_directly(PING if self._framer.wire_format == "sse" else b"")
            if self._suspended_send is not None:
                suspended, self._suspended_send = self._suspended_send, None
                self._unsent_ping = asyncio.get_running_loop().create_task(self._finish_ping(suspended))

    @property
    def _is_monitored(self) -> bool:
        """True if the monitor sends the pings. Otherwise this stream's task does, because it is woken anyway or `send` needs a task."""
        return self._server_send is not None and not self._until.polls

    def _send_directly(self, body: bytes) -> None:
        """Send without waiting. If the client does not read, `_suspended_send` has to be awaited before anything else is sent."""
        self._sent_at = time.monotonic()
        if body and self._server_send is not None:
            self._suspended_send = start_send(
                self._server_send({"type": "http.response.body", "body": body, "more_body": True})
            )
            self._is_sending = self._suspended_send is not None

    async def _finish_ping(self, suspended: SuspendedSend) -> None:
        """Wait until the client has read enough to get a ping. The stream's own task waits for batches meanwhile."""
        await suspended
        self._is_sending = False
        self._unsent_ping = None

    async def _send_ping(self, send: Send) -> None:
        if self._framer.wire_format == "sse":
            await self._send_piece(send, PING)
        self._sent_at = time.monotonic()


def _leaves_run_open(batch: Batch, was_open: bool) -> bool:
    """Return True if a reader that has this batch is within a run."""
    if batch.text is not None:
        return True
    return was_open if batch.owner != RUNTIME else not is_terminal_line(batch.lines[-1])
