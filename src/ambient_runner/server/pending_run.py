"""A run that may have to wait before it begins, as a response: its client gets the headers at once.

CopilotKit's client doubts the server after ten seconds without headers. A run that waits longer than a moment, in the queue of its thread
or for credentials, opens its stream with `: waiting` comments. A refusal is then no HTTP status any more, but the end of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
from starlette.responses import Response

from ambient_runner.errors import RunnerError
from ambient_runner.runs.isolate import reraise_as
from ambient_runner.runs.monitor import start_monitor

if TYPE_CHECKING:
    from collections.abc import MutableSet

    from starlette.types import Message, Receive, Scope, Send

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.frames import WireFormat
    from ambient_runner.runs.run import Started

__all__ = ["PendingRun", "RunResponses", "stream_response"]

IMMEDIATE_TIMEOUT = 0.25
"""Seconds within which a run begins, or is refused, as an ordinary response."""
_STOPPED_CODE, _STOPPED = "abort", "The run was stopped before it began."
_WAITING = b": waiting\n\n"
_STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_MEDIA_TYPES: dict[WireFormat, str] = {"sse": "text/event-stream", "ndjson": "application/x-ndjson"}


def stream_response(frames: bytes, wire_format: WireFormat) -> Response:
    """Return frames that are known as a whole stream."""
    return Response(frames, headers=_STREAM_HEADERS, media_type=_MEDIA_TYPES[wire_format])


class RunResponses(Protocol):
    """The part of a run's request that differs by route: its start and its responses."""

    @property
    def wire_format(self) -> WireFormat: ...

    async def start(self) -> Started:
        """Start the run. Raises: RunnerError."""
        ...

    async def open_stream(self, started: Started) -> Response:
        """Return the stream of the run. Raises: RunnerError."""
        ...

    def refuse(self, error: RunnerError) -> Response:
        """Return the response to a request that is refused. The error is counted, and logged if it is not the client's."""
        ...

    def refusal_frames(self, code: str, message: str) -> bytes:
        """Return the refusal as the frames of a stream that is open."""
        ...

    async def stop(self, started: Started) -> None:
        """Stop the run."""
        ...


@dataclass(slots=True)
class _Outcome:
    started: Started | None = None
    refusal: RunnerError | None = None


class PendingRun(Response):
    """Starts a run and sends its stream. Until that ends it is in `open_runs`, where a stop finds it.

    A client that disconnects meanwhile leaves the queue. A run that has begun continues.
    """

    def __init__(
        self,
        thread: ThreadKey,
        run_id: str,
        responses: RunResponses,
        *,
        open_runs: MutableSet[PendingRun],
        heartbeat: float,
    ) -> None:
        super().__init__()
        self.thread = thread
        self.run_id = run_id
        self._responses = responses
        self._open_runs = open_runs
        self._heartbeat = heartbeat
        self._starting = anyio.CancelScope()
        self._done = anyio.Event()
        self._outcome = _Outcome()
        self._is_stopped = False
        self._is_client_gone = False

    @property
    def started_run(self) -> str | None:
        """Key of the run that began, or that this request joined; None while it waits."""
        return self._outcome.started.run if self._outcome.started else None

    def stop_waiting(self) -> None:
        """Leave the queue. A run that begins all the same is stopped."""
        self._is_stopped = True
        self._starting.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open_runs.add(self)
        try:
            is_open = await self._wait_for_outcome(receive, send)
            if not self._is_client_gone:
                await self._respond(scope, receive, send, is_open=is_open)
        finally:
            self._open_runs.discard(self)

    async def _wait_for_outcome(self, receive: Receive, send: Send) -> bool:
        """Start the run. Return True if the stream had to be opened before it began."""
        is_open = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._start)
            monitoring = start_monitor(tasks, partial(self._cancel_on_disconnect, receive))
            is_open = await self._send_waiting(send)
            monitoring.cancel()
        return is_open

    async def _start(self) -> None:
        with self._starting:
            try:
                with reraise_as(lambda _: RunnerError()):
                    self._outcome.started = await self._responses.start()
            except RunnerError as error:
                self._outcome.refusal = error
        self._done.set()

    async def _cancel_on_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_client_gone = True
        self._starting.cancel()

    async def _send_waiting(self, send: Send) -> bool:
        """Wait for the outcome. Return True if the stream had to be opened meanwhile."""
        with anyio.move_on_after(IMMEDIATE_TIMEOUT):
            await self._done.wait()
            return False
        wire_format = self._responses.wire_format
        headers = [pair for pair in stream_response(b"", wire_format).raw_headers if pair[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not self._done.is_set():
            comment = _WAITING if wire_format == "sse" else b""
            await send({"type": "http.response.body", "body": comment, "more_body": True})
            with anyio.move_on_after(self._heartbeat):
                await self._done.wait()
        return True

    async def _respond(self, scope: Scope, receive: Receive, send: Send, *, is_open: bool) -> None:
        response = await self._open_stream()
        if isinstance(response, RunnerError):
            refused = self._responses.refuse(response)
            if not is_open:
                await refused(scope, receive, send)
                return
            response = self._refusal_stream(response.code, response.message)
        await response(scope, receive, _without_start(send) if is_open else send)

    async def _open_stream(self) -> Response | RunnerError:
        """Return the stream of the run; the error of one that was refused."""
        started = self._outcome.started
        if started is None:
            return self._outcome.refusal or self._refusal_stream(_STOPPED_CODE, _STOPPED)
        if self._is_stopped:
            await self._responses.stop(started)
        try:
            return await self._responses.open_stream(started)
        except RunnerError as error:
            return error

    def _refusal_stream(self, code: str, message: str) -> Response:
        return stream_response(self._responses.refusal_frames(code, message), self._responses.wire_format)


def _without_start(send: Send) -> Send:
    """Return a `send` for a response whose headers were sent before."""

    async def send_body(message: Message) -> None:
        if message["type"] != "http.response.start":
            await send(message)

    return send_body
