"""The requests of a process that wait for a person. Each is answered once: by a person, or when it expires or is withdrawn.

`interrupts.py` has the requests themselves, and what they look like for clients.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.interrupts import asked_again_id

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ambient_runner.bridges.acp.interrupts import AgentRequest
    from ambient_runner.bridges.toolkit.process_limits import WaitingProcessLimit

__all__ = ["OpenRequests"]


class OpenRequests:
    """Open requests of one process. One that is not answered within `seconds` calls `on_expiry`, which must end the turn."""

    def __init__(
        self, limit: WaitingProcessLimit, process: Hashable, *, seconds: float, on_expiry: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._process = process
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._timers: dict[AgentRequest, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def all(self) -> list[AgentRequest]:
        """Return the open requests in the order in which they arrived."""
        return list(self._timers)

    def find(self, interrupt_id: str) -> AgentRequest | None:
        """Return the open request that clients know under this id."""
        return next((request for request in self._timers if request.id == interrupt_id), None)

    def add(self, request: AgentRequest) -> bool:
        """Keep a request open until it is answered. Return False if too many processes wait already."""
        if not self._limit.try_enter(self._process):
            return False
        request.on_resolved = self._remove
        self._timers[request] = self._start_timer()
        return True

    def show(self, request: AgentRequest) -> None:
        """Mark a request as shown to clients. Its time begins again: they see how long it is."""
        request.is_shown = True
        self._timers[request].cancel()
        self._timers[request] = self._start_timer()

    def ask_again(self, request: AgentRequest) -> None:
        """Let a request be shown again under a new id: the answer was for other arguments."""
        request.id, request.is_shown, request.received_at = asked_again_id(request.id), False, time.monotonic()

    def withdraw(self, rpc_id: Any) -> None:
        """Close a request that the agent does not need answered any more."""
        for request in self.all():
            if request.rpc_id == rpc_id:
                request.cancel()

    def complete(self, elicitation_id: Any) -> None:
        """Accept an elicitation that a person has completed at its URL."""
        for request in self.all():
            if request.is_elicitation and request.params.get("elicitationId", request) == elicitation_id:
                request.resolve({"action": "accept"})

    def cancel_all(self) -> None:
        for request in self.all():
            request.cancel()

    def _start_timer(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._seconds, self._on_expiry)

    def _remove(self, request: AgentRequest) -> None:
        self._timers.pop(request).cancel()
        self._limit.leave(self._process)
