"""LinesAdapter: runs of one thread of a command. `run.py` is one run. It keeps the memory between runs without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.lines.memory import LinesMemory
from ambient_runner.bridges.lines.run import LinesRun
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.bridges.toolkit.run_context import RunContext
from ambient_runner.errors import NoUserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.lines.shared import LinesBridgeState

__all__ = ["LinesAdapter"]


class LinesAdapter:
    """Runs of one thread. `shared` is the state of all threads of the bridge."""

    def __init__(self, ctx: PlatformContext, shared: LinesBridgeState) -> None:
        self._platform = ctx
        self._shared = shared
        self._run: LinesRun | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process of the current turn, if there is one."""
        return self._run.handle.pid if self._run is not None and self._run.handle is not None else None

    def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(self._begin_run, input)

    async def interrupt(self) -> None:
        """End the turn, and its process."""
        if self._run is not None:
            await self._run.stop()

    async def _begin_run(self, agui_input: AguiInput) -> LinesRun:
        """Parse the input. Raises: NoUserMessage."""
        context = RunContext.from_agui(agui_input)
        if not context.has_new_input:
            raise NoUserMessage
        if context.run is not None:
            context.run.secrets.add(self._shared.secrets)
        self._run = LinesRun(context, self._platform, self._shared, self._memory(context))
        return self._run

    def _memory(self, context: RunContext) -> LinesMemory:
        """Return the memory of the thread; without a server, that of the run before."""
        if context.run is not None:
            return LinesMemory.from_stored(context.run.memory)
        return self._run.memory if self._run is not None else LinesMemory()
