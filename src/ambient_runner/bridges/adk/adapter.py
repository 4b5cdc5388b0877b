"""ADKAdapter: runs of one thread of an ADK agent. `run.py` is one run.

It owns the thread's ADK session if that is in memory, and keeps the memory between runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.memory import SessionMemory
from ambient_runner.bridges.adk.run import ADKRun
from ambient_runner.bridges.adk.run_input import RunContext
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.bridges.toolkit.run_input import read_run_input
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.adk.bridge import ADKBridge
    from ambient_runner.bridges.adk.sessions import SessionLocation
    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.protocol.events import RunAgentInput
    from ambient_runner.runs.run import Run

__all__ = ["ADKAdapter"]


class ADKAdapter:
    """Runs of one thread. Owns the thread's ADK session if that is in memory, and the abort signal of the active run."""

    def __init__(self, bridge: ADKBridge, ctx: PlatformContext) -> None:
        self._bridge = bridge
        self._instructions = [ctx.system_prompt_append] if ctx.system_prompt_append else []
        self._memory: dict[str, Any] | None = None
        self._abort = asyncio.Event()
        self._location: SessionLocation | None = None

    def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(self._begin_run, input)

    async def interrupt(self) -> None:
        """Abort the active run. ADK completes the events it has streamed so far."""
        self._abort.set()

    async def aclose(self) -> None:
        if self._location is not None and self._bridge.owns_sessions:
            await self._bridge.delete_session(self._location)

    async def _begin_run(self, agui_input: AguiInput) -> ADKRun:
        """Parse the input, and find the session and the memory of the thread."""
        self._abort = asyncio.Event()
        current, run_input = current_run_or_none(), await read_run_input(agui_input)
        self._location = self._bridge.run_location(current, run_input)
        context = self._build_context(current, run_input)
        return ADKRun(self._bridge, context, self._location, self._instructions, self._abort, self._keep_memory)

    def _keep_memory(self, stored: dict[str, Any] | None) -> None:
        self._memory = stored

    def _build_context(self, current: Run | None, run_input: RunAgentInput) -> RunContext:
        memory = current.memory if current else self._memory
        return RunContext(
            run_input=run_input,
            memory=SessionMemory.from_stored(memory),
            is_continuation=current.is_continuation or current.is_fork if current else memory is not None,
            new_ids=current.new_ids if current else None,
            convert=self._bridge.convert,
            epoch=current.epoch if current else "",
            structured_agents=self._bridge.structured_agents,
        )
