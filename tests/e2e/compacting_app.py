"""An AG-UI server that is not ours: plain FastAPI and the official encoder. It forgets all but a summary and the newest turn."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from ag_ui.core import (
    AssistantMessage,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.post("/chat")
async def chat(input: RunAgentInput) -> StreamingResponse:
    return StreamingResponse(_run(input), media_type="text/event-stream")


async def _run(input: RunAgentInput) -> AsyncIterator[str]:
    encode = EventEncoder().encode
    seen = json.dumps([message.content for message in input.messages])
    answer = AssistantMessage(id=f"{input.run_id}-stored", content=seen)
    summary = AssistantMessage(id=f"{input.run_id}-summary", content=f"{len(input.messages)} messages came before.")
    yield encode(RunStartedEvent(thread_id=input.thread_id, run_id=input.run_id))
    yield encode(TextMessageStartEvent(message_id=f"{input.run_id}-streamed", role="assistant"))
    yield encode(TextMessageContentEvent(message_id=f"{input.run_id}-streamed", delta=seen))
    yield encode(TextMessageEndEvent(message_id=f"{input.run_id}-streamed"))
    yield encode(MessagesSnapshotEvent(messages=[summary, input.messages[-1], answer]))
    yield encode(RunFinishedEvent(thread_id=input.thread_id, run_id=input.run_id))
