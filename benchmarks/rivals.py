"""The usual ways to stream AG-UI from Python, each a server of its own: `python -m benchmarks.rivals NAME`. None of them stores anything.

`adapter` is the pattern of every published adapter: `ag_ui.core` models, `EventEncoder`, FastAPI's `StreamingResponse`.
`sse` sends the same events through sse-starlette. `bare` is the floor of one send per event: frames made at start-up, no framework.
"""

from __future__ import annotations

import json
import sys
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse

from benchmarks.serving import serve
from benchmarks.workload import Workload, deltas, last_prompt, parse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PATHS = ("/", "/agents/bench")


async def agent(run: RunAgentInput) -> AsyncGenerator[BaseEvent]:
    """One message of deltas as `ag_ui.core` events, as an adapter's `run` yields them."""
    message = str(uuid.uuid4())
    yield RunStartedEvent(thread_id=run.thread_id, run_id=run.run_id)
    yield TextMessageStartEvent(message_id=message, role="assistant")
    async for text in deltas(parse(last_prompt(run.messages))):
        yield TextMessageContentEvent(message_id=message, delta=text)
    yield TextMessageEndEvent(message_id=message)
    yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)


def adapter() -> FastAPI:
    """`EventEncoder` and `StreamingResponse`."""

    async def endpoint(run: RunAgentInput, request: Request) -> StreamingResponse:
        encoder = EventEncoder(accept=request.headers.get("accept", ""))

        async def frames() -> AsyncGenerator[str]:
            async for event in agent(run):
                yield encoder.encode(event)

        return StreamingResponse(frames(), media_type=encoder.get_content_type())

    return _app(endpoint)


def sse() -> FastAPI:
    """The same events through sse-starlette, with the line ends AG-UI asks for."""

    async def endpoint(run: RunAgentInput) -> EventSourceResponse:
        async def frames() -> AsyncGenerator[dict[str, str]]:
            async for event in agent(run):
                yield {"data": event.model_dump_json(by_alias=True)}

        return EventSourceResponse(frames(), sep="\n")

    return _app(endpoint)


def _app(endpoint: Any) -> FastAPI:
    app = FastAPI()
    for path in PATHS:
        app.post(path, response_model=None)(endpoint)
    return app


@cache
def _ready_frames(count: int) -> list[bytes]:
    encoder, message = EventEncoder(), str(uuid.uuid4())
    events = [
        RunStartedEvent(thread_id="thread", run_id="run"),
        TextMessageStartEvent(message_id=message, role="assistant"),
        *(TextMessageContentEvent(message_id=message, delta=f"{n} ") for n in range(1, count + 1)),
        TextMessageEndEvent(message_id=message),
        RunFinishedEvent(thread_id="thread", run_id="run"),
    ]
    return [encoder.encode(event).encode() for event in events]


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Ready bytes, one send per event."""
    work = await _requested(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for frame in _ready_frames(work.count):
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _requested(receive: Any) -> Workload:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return parse(last_prompt(json.loads(body)["messages"]))


if __name__ == "__main__":
    serve({"adapter": adapter, "sse": sse, "bare": lambda: bare}[sys.argv[1]]())
