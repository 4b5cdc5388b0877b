"""The usual ways to stream AG-UI from Python, as servers to compare with: `python -m benchmarks.baselines NAME`. None stores anything.

`adapter` is the pattern of every published adapter: `ag_ui.core` models, `EventEncoder`, FastAPI's `StreamingResponse`.
`sse` sends the same events through sse-starlette. `bare` is the lower bound with one send per event: prepared frames, no framework.
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

from benchmarks.serving import serve
from benchmarks.workload import Workload, last_prompt, list_deltas, parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PATHS = ("/", "/agents/bench")


async def run_agent(run_input: RunAgentInput) -> AsyncGenerator[BaseEvent]:
    """Yield one message of deltas as `ag_ui.core` events, as an adapter's `run` does."""
    message, work = str(uuid.uuid4()), parse_workload(last_prompt(run_input.messages))
    yield RunStartedEvent(thread_id=run_input.thread_id, run_id=run_input.run_id)
    yield TextMessageStartEvent(message_id=message, role="assistant")
    if work.every_ms is None:
        for text in list_deltas(work):
            yield TextMessageContentEvent(message_id=message, delta=text)
    else:
        async for text in stream_deltas(work):
            yield TextMessageContentEvent(message_id=message, delta=text)
    yield TextMessageEndEvent(message_id=message)
    yield RunFinishedEvent(thread_id=run_input.thread_id, run_id=run_input.run_id)


def adapter() -> FastAPI:
    """Return an app with `EventEncoder` and `StreamingResponse`."""

    async def endpoint(run_input: RunAgentInput, request: Request) -> StreamingResponse:
        encoder = EventEncoder(accept=request.headers.get("accept", ""))

        async def frames() -> AsyncGenerator[str]:
            async for event in run_agent(run_input):
                yield encoder.encode(event)

        return StreamingResponse(frames(), media_type=encoder.get_content_type())

    return _build_app(endpoint)


def sse() -> FastAPI:
    """Return an app that sends the same events through sse-starlette, with the line ends of AG-UI."""
    from sse_starlette import EventSourceResponse  # Installed for the benchmarks only, not for the tests of them.

    async def endpoint(run_input: RunAgentInput) -> EventSourceResponse:
        async def frames() -> AsyncGenerator[dict[str, str]]:
            async for event in run_agent(run_input):
                yield {"data": event.model_dump_json(by_alias=True)}

        return EventSourceResponse(frames(), sep="\n")

    return _build_app(endpoint)


def _build_app(endpoint: Any) -> FastAPI:
    app = FastAPI()
    for path in PATHS:
        app.post(path, response_model=None)(endpoint)
    return app


@cache
def _prepare_frames(count: int) -> list[bytes]:
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
    """Send prepared bytes, one send per event."""
    work = await _read_workload(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for frame in _prepare_frames(work.count):
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _read_workload(receive: Any) -> Workload:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return parse_workload(last_prompt(json.loads(body)["messages"]))


if __name__ == "__main__":
    serve({"adapter": adapter, "sse": sse, "bare": lambda: bare}[sys.argv[1]]())
