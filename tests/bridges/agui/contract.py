"""The scripted upstream of `tests/contract/test_bridges.py`: an AG-UI agent that speaks SSE and does what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from ag_ui.core import AgentCapabilities, RunAgentInput, Tool, ToolsCapabilities

from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.protocol.encode import encode_sse_without_id
from ambient_runner.protocol.events import encode_event
from tests.world import said


async def _agent(input: RunAgentInput) -> AsyncIterator[bytes]:
    prompt = input.messages[-1].content
    answer = str([message.content for message in input.messages]) if prompt == "history" else "Well"
    start, content, end = (
        encode_sse_without_id(encode_event(event)) for event in said(f"{input.messages[-1].id}-answer", answer)
    )
    yield start
    yield content
    match prompt:
        case "crash":
            raise RuntimeError("upstream is gone")
        case "hang":
            await anyio.sleep_forever()
        case _:
            yield end


class _DeclaringAgent:
    def get_capabilities(self) -> AgentCapabilities:
        return AgentCapabilities(tools=ToolsCapabilities(items=[Tool(name="look", description="Look at a city.")]))

    def run(self, input: RunAgentInput) -> AsyncIterator[bytes]:
        return _agent(input)


def scripted_bridge() -> AGUIBridge:
    return AGUIBridge(_DeclaringAgent())
