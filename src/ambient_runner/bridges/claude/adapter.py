"""ClaudeAdapter: runs of one thread of Claude. `run.py` is one run.

It keeps the CLI process and the memory between runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.claude.memory import ClaudeMemoryStore
from ambient_runner.bridges.claude.run import ClaudeRun
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.bridges.toolkit.run_context import RunContext
from ambient_runner.errors import NoUserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.claude.session import Session
    from ambient_runner.bridges.claude.shared import ClaudeBridgeState

__all__ = ["ClaudeAdapter"]

logger = logging.getLogger(__name__)


class ClaudeAdapter:
    """Runs of one thread. `shared` is the state of all threads of the bridge."""

    def __init__(self, ctx: PlatformContext, shared: ClaudeBridgeState) -> None:
        self._platform = ctx
        self._shared = shared
        self._memory_store = ClaudeMemoryStore(ctx.workspace_path or ctx.cwd_path, shared.track_thread)
        self._run: ClaudeRun | None = None

    @property
    def session(self) -> Session | None:
        """The CLI session of the latest run, if it is still there."""
        return self._run.session if self._run is not None else None

    @property
    def pid(self) -> int | None:
        """The id of the running process, if there is one."""
        return self.session.pid if self.session is not None and self.session.is_alive else None

    def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(self._begin_run, input)

    @property
    def is_waiting(self) -> bool:
        """True while the process waits for a person's answer. A process that waits for a tool result only can be replaced."""
        return self.session is not None and self.session.is_alive and bool(self.session.open_requests)

    async def interrupt(self) -> None:
        """End the turn, also one that waits for an answer. The process stays, unless it does not react."""
        if self._run is not None:
            await self._run.stop()

    async def aclose(self) -> None:
        """End the process. An interrupt that it has open lapses: Claude asks again."""
        session = self.session
        if session is not None and session.is_waiting:
            logger.warning(
                "Thread %s: its Claude process was ended while it waited for an answer; its interrupts have lapsed.",
                self._platform.session_id,
            )
        if self._run is not None:
            await self._run.close_session()

    async def mcp_status(self) -> list[dict[str, Any]]:
        """Return the status of the MCP servers of this thread's process; nothing while there is no process."""
        return await self.session.mcp_status() if self.session is not None and self.session.is_alive else []

    def waits_for(self, input: AguiInput) -> bool:  # noqa: A002  the adapter contract's name
        """Return True if the process is in a turn that continues with what this input brings."""
        return self.session is not None and self.session.waits_for(RunContext.from_agui(input).new_input)

    async def _begin_run(self, agui_input: AguiInput) -> ClaudeRun:
        """Parse the input. Raises: NoUserMessage."""
        context = RunContext.from_agui(agui_input)
        if not context.has_new_input:
            raise NoUserMessage
        if context.run is not None:
            context.run.secrets.add(self._shared.secrets)
        self._run = ClaudeRun(context, self._platform, self._shared, self._memory_store, self.session)
        return self._run
