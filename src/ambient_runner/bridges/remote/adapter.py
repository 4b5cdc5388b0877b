"""Adapter for one thread of a remote agent: each run is one request to the other server, and the response is its event stream."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec.structs import replace

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import check_headers, secret_values
from ambient_runner.bridges.remote.translate import Translator
from ambient_runner.bridges.toolkit.agui_events import events_for_caller
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.decode import EventReader
from ambient_runner.protocol.events import PROTOCOL_VERSION, Cancelled, RunFinished
from ambient_runner.runs import metrics
from ambient_runner.runs.loop_detection import VIA, format_via_header
from ambient_runner.runs.run import Actor, current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import ag_ui.core

    from ambient_runner.bridges.remote.client import RemoteServerClient
    from ambient_runner.bridges.remote.config import Headers
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Event, RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RemoteAdapter", "remote_thread_id"]


class RemoteAdapter:
    """`interrupt` is the URL that stops a run; True for `/interrupt` of the same server, False for none, None to detect."""

    def __init__(self, remote: RemoteServerClient, headers: Headers, interrupt: str | bool | None) -> None:
        self._client = remote
        self._configured_headers = headers
        self._interrupt = interrupt
        self._headers: dict[str, str] = {}
        self._thread_id = ""
        self._is_stopping = False
        """True after `interrupt`."""
        self._is_closing = False
        """True if this side closes the response because the other server did not stop the run."""
        self._read_scope: anyio.CancelScope | None = None

    def run(self, input: ag_ui.core.RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        return events_for_caller(self._stream_run(input), input)

    async def _stream_run(self, agui_input: ag_ui.core.RunAgentInput) -> AsyncGenerator[Event, None]:
        run_input, run = input_from_agui(agui_input), current_run_or_none()
        self._is_stopping = self._is_closing = False
        self._thread_id = remote_thread_id(run.thread) if run else run_input.thread_id
        self._headers = await self._build_headers(run)
        added = run.new_ids if run else [message.id for message in run_input.messages[-1:]]
        translator = Translator(run_input, added)
        try:
            async with aclosing(self._stream_with_retry(run_input, translator)) as events:
                async for event in events:
                    yield event
        finally:
            for rule, times in translator.repairs.items():
                metrics.REPAIRS.labels(rule).inc(times)

    async def interrupt(self) -> None:
        """Ask the other server to stop the run; close its response if it cannot."""
        self._is_stopping = True
        url = self._stop_url()
        if url and await self._client.stop_run(url, self._thread_id, self._headers):
            return
        self._is_closing = True
        if self._read_scope is not None:
            self._read_scope.cancel()

    def _stop_url(self) -> str:
        if isinstance(self._interrupt, str):
            return self._interrupt
        wanted = self._client.is_ours if self._interrupt is None else self._interrupt
        return self._client.sibling_url("/interrupt") if wanted else ""

    async def _build_headers(self, run: Run | None) -> dict[str, str]:
        """Return the headers of this run. Credentials among them are redacted from now on."""
        headers_or_factory = self._configured_headers
        if callable(headers_or_factory):
            if run is None:
                raise ConfigError(
                    "The headers of this agent are computed for each run, and there is no current run. "
                    "Serve the agent with add_ambient_endpoints, or pass RemoteBridge a mapping of headers."
                )
            headers_or_factory = await call_hook(headers_or_factory, run)
        headers = check_headers(headers_or_factory)
        if run is not None:
            run.secrets.add(secret_values(headers))
        return {**_run_headers(run), "X-Ambient-On-Disconnect": "stop", **headers}

    async def _stream_with_retry(self, run_input: RunAgentInput, translator: Translator) -> AsyncGenerator[Event, None]:
        """Stream the run. If the other server no longer has the interrupts, retry without the answers: its agent then asks again."""
        try:
            async with aclosing(self._stream_request(run_input, translator)) as events:
                async for event in events:
                    yield event
                return
        except errors.RemoteFailed as failed:
            if not run_input.resume or translator.has_events or failed.code != "nothing_to_resume":
                raise
        async with aclosing(self._stream_request(replace(run_input, resume=None), translator)) as events:
            async for event in events:
                yield event

    async def _stream_request(self, run_input: RunAgentInput, translator: Translator) -> AsyncGenerator[Event, None]:
        reader = EventReader(self._client.limits.event)
        body = _encode_body(replace(run_input, thread_id=self._thread_id))
        async with (
            self._client.open_stream(body, self._headers) as response,
            aclosing(self._client.read_chunks(response)) as chunks,
        ):
            while not translator.is_ended and (chunk := await self._next_chunk(chunks)) is not None:
                for event in reader.feed(chunk):
                    for translated in translator.feed(event):
                        yield translated
            if translator.is_ended:
                await self._client.drain_stream(chunks)
                return
        if self._is_stopping:
            yield RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=Cancelled())
            return
        for event in reader.finish():
            for translated in translator.feed(event):
                yield translated
        if not translator.is_ended:
            raise errors.ended_early() if translator.has_events else errors.not_agui()

    async def _next_chunk(self, chunks: AsyncGenerator[bytes, None]) -> bytes | None:
        """Return the next chunk; None at the end, and when this side closes the response."""
        if not self._is_closing:
            with anyio.CancelScope() as self._read_scope:
                return await anext(chunks, None)
        return None


def _encode_body(run_input: RunAgentInput) -> bytes:
    """Return the request body, with every field that servers before AG-UI 1.0 require."""
    wire: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    wire |= msgspec.to_builtins(replace(run_input, protocol_version=PROTOCOL_VERSION))
    return msgspec.json.encode(wire)


def _run_headers(run: Run | None) -> dict[str, str]:
    """Return the headers for trace propagation and loop detection. A run that is not traced forwards its caller's span."""
    if run is None:
        return {}
    return {VIA: format_via_header(run), **({"traceparent": run.span.traceparent} if run.span else {})}


def remote_thread_id(thread: ThreadKey) -> str:
    """Return the thread's id on the other server. Two users may choose the same id here, and the other server does not know the users."""
    anonymous = Actor()
    if (thread.tenant, thread.owner) == (anonymous.tenant, anonymous.owner):
        return thread.id
    return hashlib.sha256(msgspec.json.encode(tuple(thread))).hexdigest()
