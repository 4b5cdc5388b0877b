"""The agent that blocks the event loop of its server: `ambient serve blocker=tests.soak.agents:block`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["block"]


async def block(input: Any) -> AsyncIterator[dict[str, Any]]:
    """Block for as many seconds as the message says, as a tool would that is not async."""
    yield {"type": "RUN_STARTED", "threadId": input.thread_id, "runId": input.run_id}
    time.sleep(float(str(input.messages[-1].content)))  # noqa: ASYNC251  the fault
    yield {"type": "RUN_FINISHED", "threadId": input.thread_id, "runId": input.run_id}
