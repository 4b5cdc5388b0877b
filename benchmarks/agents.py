"""The agent that this server runs in the benchmarks: `ambient serve bench=benchmarks.agents:TimedBridge`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.protocol.events import Event, TextMessageContent, TextMessageEnd, TextMessageStart
from benchmarks.workload import last_prompt, parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput


class TimedAdapter:
    """Streams the workload of the prompt as one message."""

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Event]:  # noqa: A002  the adapter contract's name
        message = str(uuid.uuid4())
        yield TextMessageStart(message_id=message)
        async for text in stream_deltas(parse_workload(last_prompt(input.messages))):
            yield TextMessageContent(message_id=message, delta=text)
        yield TextMessageEnd(message_id=message)


class TimedBridge(PlatformBridge):
    """An agent whose paced deltas carry the time of their creation."""

    def create_adapter(self, ctx: PlatformContext) -> TimedAdapter:
        return TimedAdapter()

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=False)
