"""Scripts for `ScriptedAgent` that many tests share, and how to wait until one of them has begun to talk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio

from ambient_runner.protocol.events import Message, TextMessageContent, TextMessageStart
from ambient_runner.runs.run import Run, Started
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import request, said


async def hello(run: Run) -> AsyncGenerator[Any, None]:
    """Says hello and ends."""
    for event in said("m-" + run.key, "hel", "lo"):
        yield event


async def forever(run: Run) -> AsyncGenerator[Any, None]:
    """Begins to talk and never ends."""
    yield TextMessageStart(message_id="m-" + run.key)
    yield TextMessageContent(message_id="m-" + run.key, delta="…")
    await anyio.sleep_forever()


async def begun(runner: Runner, *messages: Message, **options: Any) -> Started:
    """A run whose first delta has been written."""
    started = await runner.start(request(*messages, **options))
    async with runner.ledger.tail(started.thread, started.after) as tail:
        with unless_hung():
            while not any(b"CONTENT" in line for batch in await tail.next_batches() for line in batch.lines):
                pass
    return started
