"""The agents that this server runs in the benchmarks: `ambient serve bench=benchmarks.agents:TimedBridge`."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.acp import ACPBridge
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.protocol.events import (
    Event,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)
from benchmarks.workload import last_prompt, list_deltas, parse_workload, stream_deltas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ag_ui.core import RunAgentInput


_FAKE_AGENT = Path(__file__).resolve().parent.parent / "tests" / "bridges" / "acp" / "fake_agent.py"


class TimedAdapter:
    """Streams the workload of the prompt as one message, after its tool calls, each with a thought before it."""

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Event]:  # noqa: A002  the adapter contract's name
        message, work = str(uuid.uuid4()), parse_workload(last_prompt(input.messages))
        for number in range(work.calls):
            for event in _call_tool(f"{message}-{number}"):
                yield event
        yield TextMessageStart(message_id=message)
        if work.every_ms is None:
            for text in list_deltas(work):
                yield TextMessageContent(message_id=message, delta=text)
        else:
            async for text in stream_deltas(work):
                yield TextMessageContent(message_id=message, delta=text)
        yield TextMessageEnd(message_id=message)


def _call_tool(name: str) -> Iterator[Event]:
    """Yield a thought, a tool call and its result."""
    thought, call = f"thought-{name}", f"call-{name}"
    yield ReasoningStart(message_id=thought)
    yield ReasoningMessageStart(message_id=thought)
    for word in ("I ", "have ", "to ", "look."):
        yield ReasoningMessageContent(message_id=thought, delta=word)
    yield ReasoningMessageEnd(message_id=thought)
    yield ReasoningEnd(message_id=thought)
    yield ToolCallStart(tool_call_id=call, tool_call_name="search")
    for part in ('{"query": ', '"weather ', 'Lisbon"}'):
        yield ToolCallArgs(tool_call_id=call, delta=part)
    yield ToolCallEnd(tool_call_id=call)
    yield ToolCallResult(message_id=f"result-{name}", tool_call_id=call, content="21 degrees")


class TimedBridge(PlatformBridge):
    """An agent whose paced deltas carry the time of their creation."""

    def create_adapter(self, ctx: PlatformContext) -> TimedAdapter:
        return TimedAdapter()

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=False)


def fake_acp_agent() -> ACPBridge:
    """Return the bridge to the fake agent of the tests. It writes what it receives to the file in BENCH_JOURNAL."""
    journal = os.environ.get("BENCH_JOURNAL", os.devnull)
    command = [sys.executable, "-I", str(_FAKE_AGENT), "--journal", journal]
    return ACPBridge(command=command, sandbox="off", parked=200, processes=8)
