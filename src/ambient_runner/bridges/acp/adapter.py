"""ACPAdapter: runs of one thread of an ACP agent. `run.py` is one run.

It keeps the process and the memory between runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.memory import ACPMemory
from ambient_runner.bridges.acp.run import ACPRun
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.bridges.toolkit.run_context import RunContext
from ambient_runner.errors import NoUserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.acp.session import AgentSession
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.bridges.base import PlatformContext

__all__ = ["ACPAdapter"]

logger = logging.getLogger(__name__)


class ACPAdapter:
    """Runs of one thread. `shared` is the state of all threads of the bridge."""

    def __init__(self, ctx: PlatformContext, shared: ACPBridgeState) -> None:
        self._platform = ctx
        self._shared = shared
        self._run: ACPRun | None = None

    @property
    def session(self) -> AgentSession | None:
        """The session of the latest run, if it is still there."""
        return self._run.session if self._run is not None else None

    @property
    def pid(self) -> int | None:
        """The id of the running process, if there is one."""
        return self.session.pid if self.session is not None and self.session.is_alive else None

    @property
    def is_waiting(self) -> bool:
        """True while the process waits for a person's answer. A process that waits for a tool result only can be replaced."""
        return self.session is not None and self.session.is_alive and bool(self.session.requests)

    def run(self, input: AguiInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(self._begin_run, input)

    async def interrupt(self) -> None:
        """End the turn, also one that waits for an answer. The process stays, unless it does not react."""
        if self._run is not None:
            await self._run.stop()

    async def aclose(self) -> None:
        """End the process. An interrupt that it has open lapses: the agent asks again."""
        if self.is_waiting:
            logger.warning(
                "Thread %s: %s was ended while it waited for an answer; its interrupts have lapsed.",
                self._platform.session_id,
                self._shared.profile.title,
            )
        if self._run is not None:
            await self._run.close_session()

    def waits_for(self, input: AguiInput) -> bool:  # noqa: A002  the adapter contract's name
        """Return True if the process is in a turn that continues with what this input brings."""
        return self.session is not None and self.session.waits_for(RunContext.from_agui(input).new_input)

    async def _begin_run(self, agui_input: AguiInput) -> ACPRun:
        """Parse the input. Raises: NoUserMessage."""
        context = RunContext.from_agui(agui_input)
        if not context.has_new_input:
            raise NoUserMessage
        if context.run is not None:
            context.run.secrets.add(self._shared.secrets)
        self._run = ACPRun(context, self._platform, self._shared, self._memory(context), self.session)
        return self._run

    def _memory(self, context: RunContext) -> ACPMemory:
        """Return the memory of the thread; without a server, that of the run before."""
        if context.run is not None:
            return ACPMemory.from_stored(context.run.memory)
        return self._run.memory if self._run is not None else ACPMemory()
