"""State shared by all threads of an ACPBridge: its variables, its secrets, the processes it may have, and the sessions it deletes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ambient_runner.bridges.acp.errors import ACPBusy
from ambient_runner.bridges.acp.process_pool import SpareProcesses
from ambient_runner.bridges.acp.session_erasure import SessionErasure
from ambient_runner.bridges.toolkit.process_limits import WaitingProcessLimit
from ambient_runner.bridges.toolkit.secret_variables import secret_values
from ambient_runner.config import base_environment, named_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.config import ACPConfig
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.session import AgentSession

__all__ = ["ACPBridgeState"]


class ACPBridgeState:
    """State of one bridge."""

    def __init__(self, config: ACPConfig) -> None:
        self.config = config
        self.profile = config.known_agent
        self.waiting_limit = WaitingProcessLimit(config.parked)
        self.base_variables: Mapping[str, str] = {
            **base_environment(),
            **named_environment([*self.profile.passed_variables, *config.pass_env]),
            **config.env,
        }
        """Variables of the server for every process."""
        self.secrets = secret_values(self.base_variables)
        """Secrets that every process has, or that a gateway uses for it."""
        self.erasure = SessionErasure(self)
        self._spares = SpareProcesses(self)
        self._sessions: OrderedDict[AgentSession, None] = OrderedDict()

    def take_spare(self, launch: Launch) -> AgentSession | None:
        """Return a process that was started ahead and can be used for this launch, counted as one in use; None if there is none."""
        spare = self._spares.take(launch)
        if spare is not None:
            self._sessions[spare] = None
        return spare

    def start_spares(self, launch: Launch) -> None:
        """Start processes ahead, in the background, for threads that are started like this one. Ends no process to make room."""
        self._spares.refill(launch, self.config.processes - len(self._working_sessions()))

    async def admit(self, session: AgentSession) -> None:
        """Count a process that is about to start. Ends spare and idle ones to make room. Raises: ACPBusy if there are none."""
        while len(self._working_sessions()) + len(self._spares) >= self.config.processes:
            if await self._spares.end_oldest():
                continue
            idle = next((other for other in self._sessions if other.is_idle), None)
            if idle is None:
                raise ACPBusy
            self.remove(idle)
            await idle.aclose()
        self._sessions[session] = None

    def touch(self, session: AgentSession) -> None:
        """Mark a process as the one that was used last."""
        if session in self._sessions:
            self._sessions.move_to_end(session)

    def remove(self, session: AgentSession) -> None:
        self._sessions.pop(session, None)

    async def aclose(self) -> None:
        await self._spares.aclose()
        while self._sessions:
            session, _ = self._sessions.popitem()
            await session.aclose()

    def _working_sessions(self) -> list[AgentSession]:
        """Return the processes that do not wait for an answer."""
        return [session for session in self._sessions if not session.requests]
