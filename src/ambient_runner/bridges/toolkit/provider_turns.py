"""A turn of a provider as a stream of events. `provider.py` has the interface.

A provider passes events to a sink as they come, in a task of its own, and a run yields them when it is asked. While too many events are
unread, the output of the process is paused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

import anyio

from ambient_runner.bridges.toolkit.provider import Handle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.bridges.toolkit.provider import ProviderAdapter, StopReason
    from ambient_runner.protocol.events import Event

__all__ = ["ProviderTurn"]

_MAX_UNREAD = 1024
"""Events that wait before the output of the process is paused."""


class ProviderTurn(Generic[Handle]):
    """One turn. `stop_reason` is known after the last event."""

    def __init__(self, provider: ProviderAdapter[Handle], handle: Handle) -> None:
        self.stop_reason: StopReason | None = None
        self._provider = provider
        self._handle = handle
        self._unread: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events of the turn. Closing it ends the task, not the process. Raises: BridgeError."""
        # Not a task group: a generator must not yield inside of one.
        task = asyncio.create_task(self._provider.decode_stream(self._handle, self._put))
        task.add_done_callback(self._handle_end)
        try:
            while not task.done() or self._unread:
                for event in self._take_unread():
                    yield event
                await self._wait_for_events(task)
            self.stop_reason = task.result()
        finally:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task})

    def _put(self, event: Event) -> None:
        self._unread.append(event)
        self._wake_reader()
        if len(self._unread) >= _MAX_UNREAD and not self._is_paused:
            self._is_paused = True
            self._handle.pause_output()

    def _take_unread(self) -> list[Event]:
        events, self._unread = self._unread, []
        return events

    async def _wait_for_events(self, task: asyncio.Task[StopReason]) -> None:
        if self._unread or task.done():
            return
        if self._is_paused:
            self._is_paused = False
            self._handle.resume_output()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _handle_end(self, task: asyncio.Task[StopReason]) -> None:
        if not task.cancelled():
            task.exception()  # Retrieved also if nobody reads the events to their end.
        self._wake_reader()
