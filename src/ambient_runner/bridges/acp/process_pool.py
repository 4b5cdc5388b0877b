"""Processes of an agent that are started ahead: a new thread takes one, and does not wait for the agent's start.

A spare process has no session, so nothing of a conversation. It is started like the process of the newest thread, and serves only threads
that are started in the same way (`Launch.can_serve`). The directory counts too, although a session names its own: agents read settings
of the directory that they are started in, and in a sandbox they see no other.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from ambient_runner.bridges.acp.session import AgentSession
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.shared import ACPBridgeState

__all__ = ["SpareProcesses"]

logger = logging.getLogger(__name__)

_MAX_AGE = 3600.0
"""Seconds after which a spare process is replaced: the agent's settings and its login may have changed since its start."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Spare:
    """A process, and the task that owns it until a run takes it."""

    session: AgentSession
    task: asyncio.Task[None]
    is_taken: bool = False


class SpareProcesses:
    """The spare processes of a bridge, at most `spare` of its options. `aclose` ends them all."""

    def __init__(self, shared: ACPBridgeState) -> None:
        self._shared = shared
        self._spares: list[_Spare] = []
        """The oldest first; also those that are starting."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_reported = False

    def __len__(self) -> int:
        return len(self._spares)

    def take(self, launch: Launch) -> AgentSession | None:
        """Return a process that is ready and can be used for this launch; None if there is none. The caller owns it."""
        for spare in self._spares:
            if spare.session.is_spare and spare.session.launch.can_serve(launch):
                spare.is_taken = True
                self._release(spare)
                return spare.session
        return None

    def refill(self, launch: Launch, room: int) -> None:
        """Start what is missing, without waiting. There are at most `room` in all. If none is like this launch, the oldest is replaced."""
        if not launch.is_shareable:
            self._report_unshareable()
            return
        limit = min(self._shared.config.spare, room)
        is_served = any(spare.session.launch.can_serve(launch) for spare in self._spares)
        if 0 < limit <= len(self._spares) and not is_served:
            self._release(self._spares[0])
        while len(self._spares) < limit:
            self._start(launch)

    async def end_oldest(self) -> bool:
        """End a process to make room. Return False if there is none."""
        if not self._spares:
            return False
        oldest = self._spares[0]
        self._release(oldest)
        await asyncio.wait({oldest.task})
        return True

    async def aclose(self) -> None:
        for spare in list(self._spares):
            self._release(spare)
        with anyio.CancelScope(shield=True):
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _start(self, launch: Launch) -> None:
        session = AgentSession(launch, self._shared)
        # The process outlives the run, so no task group of the run can own this task; `aclose` ends it. It is not a task of the run either.
        task = Context().run(asyncio.create_task, self._own_process(session))
        self._spares.append(_Spare(session=session, task=task))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _release(self, spare: _Spare) -> None:
        """Let the task end, with the process unless it is taken."""
        self._spares.remove(spare)
        spare.task.cancel()

    def _report_unshareable(self) -> None:
        """Log once that the option has no effect for a thread."""
        if self._shared.config.spare and not self._has_reported:
            self._has_reported = True
            logger.warning(
                "No spare process of %s was started: no other thread could use it. Threads share spare processes only if they work in "
                "one directory, with the user's own home, without a sandbox for each and without granted variables.",
                self._shared.profile.title,
            )

    async def _own_process(self, session: AgentSession) -> None:
        spare = next(spare for spare in self._spares if spare.session is session)
        is_outdated = False
        try:
            with isolate(f"starting a spare process of {self._shared.profile.title}"):
                await session.start_process()
                with anyio.move_on_after(_MAX_AGE) as age:
                    await session.wait_for_exit()
                is_outdated = age.cancelled_caught
        finally:
            if spare in self._spares:
                self._spares.remove(spare)
            if not spare.is_taken:
                await session.aclose(now=True)
        if is_outdated and not spare.is_taken:
            self._start(session.launch)
