"""One thread behind another server: each run is one request there, and its answer is the run."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec.structs import replace

from ambient_runner.bridges.remote import errors
from ambient_runner.bridges.remote.config import checked_headers, secret_values
from ambient_runner.bridges.remote.translate import Translation
from ambient_runner.bridges.toolkit.callbacks import call_hook
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_from_agui
from ambient_runner.protocol.decode import EventReader
from ambient_runner.protocol.events import PROTOCOL_VERSION, Cancelled, RunFinished
from ambient_runner.runs import metrics
from ambient_runner.runs.loop_detection import VIA, via_of
from ambient_runner.runs.run import Actor, run_if_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import ag_ui.core

    from ambient_runner.bridges.remote.client import Remote
    from ambient_runner.bridges.remote.config import Headers
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.protocol.events import Event, RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["RemoteAdapter", "remote_thread"]


class RemoteAdapter:
    """`interrupt` is where a run is stopped: a URL, True for `/interrupt` beside the agent, False for nowhere, None to find out."""

    def __init__(self, remote: Remote, headers: Headers, interrupt: str | bool | None) -> None:
        self._remote = remote
        self._given = headers
        self._interrupt = interrupt
        self._headers: dict[str, str] = {}
        self._thread_id = ""
        self._stopped = False
        """Whether the run was asked to stop."""
        self._closing = False
        """Whether it is this side that ends it."""
        self._waiting: anyio.CancelScope | None = None

    async def run(self, input: ag_ui.core.RunAgentInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        asked, run = input_from_agui(input), run_if_any()
        self._stopped = self._closing = False
        self._thread_id = remote_thread(run.thread) if run else asked.thread_id
        self._headers = await self._headers_of(run)
        added = run.new_ids if run else [message.id for message in asked.messages[-1:]]
        heard = Translation(asked, added)
        try:
            async with aclosing(self._answer(asked, heard)) as events:
                async for event in events:
                    yield event
        finally:
            for rule, times in heard.repairs.items():
                metrics.REPAIRS.labels(rule).inc(times)

    async def interrupt(self) -> None:
        """End the run: the other server is asked to, or its answer is closed."""
        self._stopped = True
        url = self._stop_url()
        if url and await self._remote.stop(url, self._thread_id, self._headers):
            return
        self._closing = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _stop_url(self) -> str:
        if isinstance(self._interrupt, str):
            return self._interrupt
        wanted = self._remote.is_ours if self._interrupt is None else self._interrupt
        return self._remote.beside("/interrupt") if wanted else ""

    async def _headers_of(self, run: Run | None) -> dict[str, str]:
        """What goes with this run. From here on, this server does not let out a credential among it."""
        given = self._given
        if callable(given):
            if run is None:
                raise ConfigError(
                    "The headers of this agent are made for a run, and there is none here. "
                    "Serve it with add_ambient_endpoints, or give RemoteBridge the headers themselves."
                )
            given = await call_hook(given, run)
        headers = checked_headers(given)
        if run is not None:
            run.secrets.learn(secret_values(headers))
        return {**_of_run(run), "X-Ambient-On-Disconnect": "stop", **headers}

    async def _answer(self, asked: RunAgentInput, heard: Translation) -> AsyncGenerator[Event, None]:
        """The run; once more without the answers when the other server has forgotten what it asked, so that its agent asks again."""
        try:
            async with aclosing(self._attempt(asked, heard)) as events:
                async for event in events:
                    yield event
                return
        except errors.RemoteFailed as failed:
            if not asked.resume or heard.heard or failed.code != "nothing_to_resume":
                raise
        async with aclosing(self._attempt(replace(asked, resume=None), heard)) as events:
            async for event in events:
                yield event

    async def _attempt(self, asked: RunAgentInput, heard: Translation) -> AsyncGenerator[Event, None]:
        reader = EventReader(self._remote.limits.event)
        body = _body(replace(asked, thread_id=self._thread_id))
        async with (
            self._remote.answering(body, self._headers) as response,
            aclosing(self._remote.pieces(response)) as pieces,
        ):
            while not heard.ended and (piece := await self._next(pieces)) is not None:
                for event in reader.feed(piece):
                    for said in heard.feed(event):
                        yield said
            if heard.ended:
                await self._remote.finish(pieces)
                return
        if self._stopped:
            yield RunFinished(thread_id=asked.thread_id, run_id=asked.run_id, outcome=Cancelled())
            return
        for event in reader.end():
            for said in heard.feed(event):
                yield said
        if not heard.ended:
            raise errors.ended_early() if heard.heard else errors.not_agui()

    async def _next(self, pieces: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next piece; None at the end, and when the run is to end."""
        if not self._closing:
            with anyio.CancelScope() as self._waiting:
                return await anext(pieces, None)
        return None


def _body(asked: RunAgentInput) -> bytes:
    """The request. Everything is there that servers before 1.0 insist on."""
    wire: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    wire |= msgspec.to_builtins(replace(asked, protocol_version=PROTOCOL_VERSION))
    return msgspec.json.encode(wire)


def _of_run(run: Run | None) -> dict[str, str]:
    """What makes the other server's trace part of this one, and tells it who waits. A run that nobody traces passes on what it got."""
    if run is None:
        return {}
    return {VIA: via_of(run), **({"traceparent": run.span.traceparent} if run.span else {})}


def remote_thread(thread: ThreadKey) -> str:
    """The thread's id over there. Two users may choose the same id here, and the other server knows neither of them."""
    nobody = Actor()
    if (thread.tenant, thread.owner) == (nobody.tenant, nobody.owner):
        return thread.id
    return hashlib.sha256(msgspec.json.encode(tuple(thread))).hexdigest()
