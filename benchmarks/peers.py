"""Servers for one scene each: `python -m benchmarks.peers NAME`. None stores anything.

`pings` and `sse_pings` hold idle event streams open, `broadcast` sends one run to all its readers, `fastapi` is an app with one route.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.serving import serve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

PING_SECONDS = 15.0
_FRAME = 'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"message-1","delta":"%d "}\n\n'
_END = 'data: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n'


def fastapi() -> FastAPI:
    """Return the smallest app that FastAPI's documentation shows."""
    app = FastAPI()

    @app.get("/health")
    async def read_health() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    return app


def pings() -> Starlette:
    """Return an app whose streams have nothing to send but a ping now and then."""

    async def stream() -> AsyncGenerator[str]:
        event = asyncio.Event()
        yield ": ping\n\n"
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), PING_SECONDS)
            yield ": ping\n\n"

    async def endpoint(request: Request) -> StreamingResponse:
        return StreamingResponse(stream(), media_type="text/event-stream")

    return Starlette(routes=[Route("/{path:path}", endpoint)])


def sse_pings() -> Starlette:
    """Return the same app with sse-starlette, which sends the pings itself."""
    from sse_starlette import EventSourceResponse  # Installed for the benchmarks only, not for the tests of them.

    async def stream() -> AsyncGenerator[dict[str, str]]:
        yield {"comment": "ping"}
        await asyncio.Event().wait()

    async def endpoint(request: Request) -> EventSourceResponse:
        return EventSourceResponse(stream(), ping=int(PING_SECONDS), sep="\n")

    return Starlette(routes=[Route("/{path:path}", endpoint)])


def broadcast() -> Starlette:
    """Return an app in which every reader has a queue, and `POST /COUNT` puts so many frames into each."""
    queues = set[asyncio.Queue[str]]()

    async def stream() -> AsyncGenerator[str]:
        queue = asyncio.Queue[str]()
        queues.add(queue)
        yield ": ping\n\n"
        try:
            while (frame := await queue.get()) != _END:
                yield frame
            yield _END
        finally:
            queues.discard(queue)

    async def read(request: Request) -> StreamingResponse:
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def publish(request: Request) -> Response:
        for number in range(1, request.path_params["count"] + 1):
            for queue in queues:
                queue.put_nowait(_FRAME % number)
            await asyncio.sleep(0)
        for queue in queues:
            queue.put_nowait(_END)
        return Response()

    return Starlette(routes=[Route("/{count:int}", publish, methods=["POST"]), Route("/{path:path}", read)])


APPS: dict[str, Any] = {"pings": pings, "sse_pings": sse_pings, "broadcast": broadcast, "fastapi": fastapi}

if __name__ == "__main__":
    serve(APPS[sys.argv[1]]())
