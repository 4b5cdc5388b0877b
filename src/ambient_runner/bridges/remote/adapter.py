"""Adapter for one thread of a remote agent: each run is one request to the other server, and the response is its event stream."""

from __future__ import annotations

import hashlib
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import check_headers, secret_values
from ambient_runner.bridges.remote.interrupts import without_lapsed_answers
from ambient_runner.bridges.remote.memory import RemoteMemory
from ambient_runner.bridges.remote.translate import Translator
from ambient_runner.bridges.toolkit.agui_events import events_for_caller
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.bridges.toolkit.interrupts import interrupt_lapsed_events, resolved_interrupt_ids
from ambient_runner.bridges.toolkit.memory import memory_events
from ambient_runner.bridges.toolkit.run_input import read_run_input
from ambient_runner.errors import ConfigError, InterruptNotOpen, PendingInterrupts
from ambient_runner.projections.redaction import Redactor
from ambient_runner.protocol.decode import EventReader
from ambient_runner.protocol.events import (
    PROTOCOL_VERSION,
    Cancelled,
    RunError,
    RunFinished,
    SubagentError,
    ToolCallStart,
)
from ambient_runner.protocol.headers import AUDIENCE_HEADER, ON_DISCONNECT_HEADER
from ambient_runner.runs import metrics
from ambient_runner.runs.loop_detection import VIA, format_via_header
from ambient_runner.runs.run import Actor, current_run_or_none, describe_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import ag_ui.core

    from ambient_runner.bridges.remote.client import RemoteServerClient
    from ambient_runner.bridges.remote.config import Headers
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Event, RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RemoteAdapter", "build_headers", "remote_thread_id"]

logger = logging.getLogger(__name__)


class RemoteAdapter:
    """`interrupt` is the URL that stops a run; True for `/interrupt` of the same server, False for none, None to detect."""

    def __init__(self, remote: RemoteServerClient, headers: Headers, interrupt: str | bool | None) -> None:
        self._client = remote
        self._configured_headers = headers
        self._interrupt = interrupt
        self._headers: dict[str, str] = {}
        self._thread_id = ""
        self._memory = RemoteMemory()
        self._is_stopping = False
        """True after `interrupt`."""
        self._is_closing = False
        """True if this side closes the response because the other server did not stop the run."""
        self._read_scope: anyio.CancelScope | None = None

    def run(self, input: ag_ui.core.RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        return events_for_caller(self._stream_run(input), input)

    async def _stream_run(self, agui_input: ag_ui.core.RunAgentInput) -> AsyncGenerator[Event, None]:
        run_input, run = await read_run_input(agui_input), current_run_or_none()
        self._is_stopping = self._is_closing = False
        self._thread_id = remote_thread_id(run.thread) if run else run_input.thread_id
        self._headers = await build_headers(self._configured_headers, run)
        added = run.new_ids if run else [message.id for message in run_input.messages[-1:]]
        self._memory = RemoteMemory.from_stored(run.memory if run else None)
        translator = Translator(run_input, added, self._memory.renamed_calls())
        try:
            async with aclosing(self._stream_with_retry(run_input, translator)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, ToolCallStart):
                        for memory in self._remember_renamed(translator):
                            yield memory
        finally:
            for rule, times in translator.repairs.items():
                metrics.REPAIRS.labels(rule).inc(times)

    def _remember_renamed(self, translator: Translator) -> list[Event]:
        """Return the event that stores the calls which got another id here, if there are new ones."""
        before, self._memory = self._memory, self._memory.with_renamed_calls(translator.renamed_calls)
        return memory_events(self._memory.to_stored()) if self._memory != before else []

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

    async def _stream_with_retry(self, run_input: RunAgentInput, translator: Translator) -> AsyncGenerator[Event, None]:
        """Stream the run, once more if the other server knows other interrupts than this one. Answers that it cannot use are announced."""
        try:
            async with aclosing(self._stream_request(run_input, translator)) as events:
                async for event in events:
                    yield event
                return
        except errors.RemoteFailed as failed:
            retried = None if translator.has_events else await self._input_for_retry(run_input, failed.code)
            if retried is None:
                raise
        lapsed = interrupt_lapsed_events(resolved_interrupt_ids(run_input.resume or ()))
        async with aclosing(self._stream_request(retried, translator)) as events:
            async for event in events:
                yield event
                while lapsed:  # After the first event, which is RUN_STARTED.
                    yield lapsed.pop()

    async def _input_for_retry(self, run_input: RunAgentInput, code: str) -> RunAgentInput | None:
        """Return the input to send after a refusal with this code; None if it must not be sent again.

        This server's interrupts count. If the other one has lost them, its agent asks again; those that were cancelled here are cancelled
        there.
        """
        if code == InterruptNotOpen.code and run_input.resume:
            return without_lapsed_answers(run_input)
        url = self._stop_url() if code == PendingInterrupts.code and not run_input.resume else ""
        is_cancelled = bool(url) and await self._client.stop_run(url, self._thread_id, self._headers)
        return run_input if is_cancelled else None

    async def _stream_request(self, run_input: RunAgentInput, translator: Translator) -> AsyncGenerator[Event, None]:
        reader = EventReader(self._client.limits.event)
        messages = self._memory.with_their_call_ids(run_input.messages)
        body = _encode_body(replace(run_input, thread_id=self._thread_id, messages=messages))
        async with (
            self._client.open_stream(body, self._headers) as response,
            aclosing(self._client.read_chunks(response)) as chunks,
        ):
            while not translator.is_ended and (chunk := await self._next_chunk(chunks)) is not None:
                for event in reader.feed(chunk):
                    for translated in translator.feed(self._hide_error_text(event)):
                        yield translated
            if translator.is_ended:
                await self._client.drain_stream(chunks)
                return
        if self._is_stopping:
            yield RunFinished(thread_id=run_input.thread_id, run_id=run_input.run_id, outcome=Cancelled())
            return
        for event in reader.finish():
            for translated in translator.feed(self._hide_error_text(event)):
                yield translated
        if not translator.is_ended:
            raise errors.ended_early() if translator.has_events else errors.not_agui()

    def _hide_error_text(self, event: Event) -> Event:
        """Return the event; an error with a message of ours instead of the other server's, which is logged.

        Another Ambient Runner has hidden the texts of exceptions already: what it sends with a code says what to do next.
        """
        if not isinstance(event, RunError | SubagentError) or (self._client.is_ours and event.code):
            return event
        run, secrets = current_run_or_none(), secret_values(self._headers)
        logger.warning(
            "%s: the agent of %s failed (code %s): %s",
            self._client.address,
            describe_run(run),
            *(
                Redactor(run.secrets if run else secrets).redact_text(text or "")
                for text in (event.code, event.message)
            ),
        )
        return errors.hide_error_text(event, secrets)

    async def _next_chunk(self, chunks: AsyncGenerator[bytes, None]) -> bytes | None:
        """Return the next chunk; None at the end, and when this side closes the response."""
        if not self._is_closing:
            with anyio.CancelScope() as self._read_scope:
                return await anext(chunks, None)
        return None


async def build_headers(configured: Headers, run: Run | None) -> dict[str, str]:
    """Return the headers of this run's requests. Credentials among them are redacted from now on. Raises: ConfigError."""
    if not callable(configured):
        headers = check_headers(configured)
    else:
        if run is None:
            raise ConfigError(
                "The headers of this agent are computed for each run, and there is no current run. "
                "Serve the agent with add_ambient_endpoints, or pass RemoteBridge a mapping of headers."
            )
        headers = check_headers(await call_hook(configured, run))
    if run is not None:
        await to_thread.run_sync(run.secrets.add, secret_values(headers))  # They may be the client's.
    return {**_run_headers(run), ON_DISCONNECT_HEADER: "stop", AUDIENCE_HEADER: "open", **headers}


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
