"""A tiny AG-UI agent for the tests of the gateway: it says how many messages it was shown, and what they were."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)


async def agent(input: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Answers with what it was shown. After `hang` it never ends."""
    yield RunStartedEvent(thread_id=input.thread_id, run_id=input.run_id)
    message = f"{input.run_id}-answer"
    word = input.messages[-1].content
    yield TextMessageStartEvent(message_id=message, role="assistant")
    yield TextMessageContentEvent(message_id=message, delta=_answer(input))
    if word == "hang":
        await anyio.sleep_forever()
    yield TextMessageEndEvent(message_id=message)
    yield RunFinishedEvent(thread_id=input.thread_id, run_id=input.run_id)


def _answer(input: RunAgentInput) -> str:
    return json.dumps([message.content for message in input.messages])
