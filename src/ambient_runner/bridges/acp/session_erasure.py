"""The deletion of the sessions that an agent keeps in the user's own home, when their thread is erased.

A home that belongs to a thread is deleted with it. The process of the thread has ended by then, so another one is started.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import anyio

from ambient_runner.bridges.acp.launch import build_erasure_launch
from ambient_runner.bridges.acp.session import AgentSession
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.shared import ACPBridgeState
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["SessionErasure"]

_MAX_TRACKED_THREADS = 10_000
_TIMEOUT = 20.0
"""Seconds for the deletion of the sessions of one thread, with the start of a process. A client waits for it."""


class SessionErasure:
    """Deletes the sessions of threads that this server has used."""

    def __init__(self, shared: ACPBridgeState) -> None:
        self._shared = shared
        self._threads: OrderedDict[ThreadKey, tuple[Launch, frozenset[str]]] = OrderedDict()
        self._lock = anyio.Lock()
        """One process at a time: many threads may be erased together."""

    def track_session(self, thread: ThreadKey, session: AgentSession) -> None:
        """Remember a session of a thread, if the agent can delete it and nothing else would."""
        if session.launch.home.is_own or not session.offers("delete"):
            return
        _, sessions = self._threads.pop(thread, (None, frozenset[str]()))
        launch = build_erasure_launch(session.launch, self._shared)
        self._threads[thread] = (launch, sessions | {session.id})
        if len(self._threads) > _MAX_TRACKED_THREADS:
            self._threads.popitem(last=False)

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Let the agent delete the sessions of a thread. What it does not delete in time is logged."""
        if thread not in self._threads:
            return
        launch, sessions = self._threads.pop(thread)
        async with self._lock:
            with (
                isolate(f"deleting the sessions of thread {thread.id} of {self._shared.profile.title}"),
                anyio.fail_after(_TIMEOUT),
            ):
                await self._delete_sessions(AgentSession(launch, self._shared, thread.id), sessions)

    async def _delete_sessions(self, process: AgentSession, sessions: frozenset[str]) -> None:
        await process.start_process()
        try:
            for session_id in sorted(sessions):
                with isolate(f"deleting the session {session_id} of {self._shared.profile.title}"):
                    await process.delete_session(session_id)
        finally:
            await process.aclose()
