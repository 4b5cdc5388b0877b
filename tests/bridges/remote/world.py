"""Another server, scripted byte by byte on a real socket, and a thread of a Runner in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.config import Settings
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.encode import encode_sse_without_id
from ambient_runner.protocol.events import Event, Message, RunFinished, RunStarted, encode_event
from ambient_runner.runs.run import Middleware
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, run_once

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OUR_HEAD = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nX-Ambient-Run: 1\r\n\r\n")


@dataclass
class UpstreamRequest:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Answer = Callable[[UpstreamRequest], AsyncIterator[bytes]]


@dataclass
class Upstream:
    """The other server. Each request is answered by the next of `answers`, the last one again and again."""

    url: str
    answers: list[Answer]
    requests: list[UpstreamRequest] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has gone before its answer was complete."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(reader)
            self.requests.append(request)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            gone = asyncio.create_task(reader.read())
            try:
                await self._write(answer(request), writer, gone)
            finally:
                gone.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()

    async def _write(
        self, pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, gone: asyncio.Task[bytes]
    ) -> None:
        while True:
            piece = asyncio.ensure_future(anext(pieces, None))
            await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not piece.done():
                piece.cancel()
                self.left.set()
                return
            if (data := piece.result()) is None:
                return
            writer.write(data)
            await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> UpstreamRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return UpstreamRequest(method, path, headers, msgspec.json.decode(body) if body else None)


@asynccontextmanager
async def upstream(*answers: Answer) -> AsyncGenerator[Upstream, None]:
    served = Upstream("", list(answers))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, limit=1 << 24)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        yield served


def raw(*pieces: bytes) -> Answer:
    """These bytes, and the end of the connection."""

    async def answer(request: UpstreamRequest) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return answer


def status(line: str, body: bytes = b"", content_type: str = "application/json") -> Answer:
    head = (
        f"HTTP/1.1 {line}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return raw(head.encode() + body)


def framed(*events: Event, head: bytes = SSE_HEAD) -> Answer:
    """A run of these events, with RUN_STARTED and RUN_FINISHED around them."""

    async def answer(request: UpstreamRequest) -> AsyncIterator[bytes]:
        thread, run = request.body["threadId"], request.body["runId"]
        yield head
        for event in (
            RunStarted(thread_id=thread, run_id=run),
            *events,
            RunFinished(thread_id=thread, run_id=run),
        ):
            yield encode_sse_without_id(encode_event(event))

    return answer


def stream(*events: Event) -> bytes:
    return b"".join(encode_sse_without_id(encode_event(event)) for event in events)


def endless(*events: Event, head: bytes = SSE_HEAD) -> Answer:
    """These events, and then nothing more."""

    async def answer(request: UpstreamRequest) -> AsyncIterator[bytes]:
        yield head
        yield stream(RunStarted(thread_id="x", run_id="y"), *events)
        await asyncio.Event().wait()

    return answer


@dataclass
class Thread:
    """A thread of a Runner in front of the other server."""

    runner: Runner
    upstream: Upstream

    async def run(self, *messages: Message, **options: Any) -> list[Event]:
        return await run_once(self.runner, *messages, **options)

    async def messages(self) -> list[Message]:
        return (await self.runner.view_thread(KEY)).transcript.messages()

    def shown(self, turn: int = -1) -> list[Any]:
        """The messages the other server was shown."""
        return self.upstream.requests[turn].body["messages"]


@asynccontextmanager
async def fronting(
    *answers: Answer,
    settings: Settings = SETTINGS,
    path: str = "",
    middleware: Sequence[Middleware] = (),
    **options: Any,
) -> AsyncGenerator[Thread, None]:
    async with (
        upstream(*answers) as served,
        hosting(RemoteBridge(served.url + path, **options), settings, middleware) as runner,
    ):
        yield Thread(runner, served)


@asynccontextmanager
async def hosting(
    bridge: RemoteBridge, settings: Settings = SETTINGS, middleware: Sequence[Middleware] = ()
) -> AsyncGenerator[Runner, None]:
    """A Runner in front of it. Nothing done with it may take longer than 20 seconds."""
    agents = {"agent": AgentHost("agent", bridge)}
    with unless_hung():
        async with MemoryLedger() as ledger, Runner(ledger, agents, settings, middleware) as runner:
            yield runner


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]
