"""Runs of an AG-UI agent object, such as a StrandsAgent: its `run(input)`, with one adapter per thread.

Without a server, the agent keeps the adapters of its threads. On a server, a `run` that a subclass overrides or a wrapper adds is called
with `OwnRunAdapter`, and the agent's own `run` inside it uses the adapter that the bridge has created.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ag_ui.core import BaseEvent

from ambient_runner.errors import RunnerError, ThreadBusy
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.events import PROTOCOL_VERSION, MessagesSnapshot, RunError, RunStarted
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import RunAttribute, current_run, current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable

    from ag_ui.core import RunAgentInput

__all__ = ["AgentRuns", "OwnRunAdapter", "has_own_run"]

logger = logging.getLogger(__name__)


class AgentRuns:
    """The adapters of an agent's threads. `label` is the agent in log messages.

    `create_adapter` gets the input of a thread's first run; `key_of` returns the thread of an input without a server. At most `max_threads`
    adapters are kept; those of threads that have been idle for longest are closed.
    """

    def __init__(
        self,
        label: str,
        create_adapter: Callable[[RunAgentInput], Any],
        key_of: Callable[[RunAgentInput], Hashable],
        *,
        max_threads: int = 256,
    ) -> None:
        self._label = label
        self._create_adapter = create_adapter
        self._key_of = key_of
        self._max_threads = max_threads
        self._adapters: OrderedDict[Hashable, Any] = OrderedDict()
        self._running: set[Hashable] = set()

    async def stream(
        self, run_input: RunAgentInput, start: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[BaseEvent, None]:
        """Yield the events of one run as models of `ag_ui.core`, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.

        `start` returns the events of the thread's adapter. A failure is logged.
        """
        thread_id, run_id = run_input.thread_id, run_input.run_id
        yield to_agui(RunStarted(thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION))
        try:
            async with self._open_adapter(run_input) as adapter, aclosing(start(adapter)) as events:
                async for event in events:
                    if isinstance(event, BaseEvent):
                        yield event
                    elif not isinstance(event, MessagesSnapshot):  # a server folds its own
                        yield to_agui(event)
        except RunnerError as error:
            logger.exception("Run %s on thread %s of %s failed", run_id, thread_id, self._label)
            yield to_agui(RunError(message=error.message, code=error.code))

    async def interrupt(self, key: Hashable) -> None:
        """Stop the active run of the thread with this key, on a server the current run, if there is one."""
        run = current_run_or_none()
        slot = run.thread if run else key
        if slot in self._running:
            await self._adapters[slot].interrupt()

    async def aclose(self) -> None:
        """Close the adapters of all threads."""
        for key in list(self._adapters):
            await self._close_adapter(key)

    @asynccontextmanager
    async def _open_adapter(self, run_input: RunAgentInput) -> AsyncGenerator[Any, None]:
        """Yield the adapter of the thread. Raises: ThreadBusy."""
        run = current_run_or_none()
        served = SERVED_ADAPTER.get(run) if run else None
        if served is not None and served[0] is self:
            yield served[1]
            return
        slot = run.thread if run else self._key_of(run_input)  # two users of a server may choose the same thread id
        # On a server, only a run that did not stop and was abandoned can still be active.
        if run is None and slot in self._running:
            raise ThreadBusy
        adapter = self._adapters[slot] = self._adapters.get(slot) or self._create_adapter(run_input)
        self._adapters.move_to_end(slot)
        self._running.add(slot)
        try:
            await self._close_excess()
            yield adapter
        finally:
            self._running.discard(slot)

    async def _close_excess(self) -> None:
        idle = [slot for slot in self._adapters if slot not in self._running]
        for slot in idle[: max(len(self._adapters) - self._max_threads, 0)]:
            await self._close_adapter(slot)

    async def _close_adapter(self, slot: Hashable) -> None:
        with isolate(f"closing the adapter of {self._label}"):
            await self._adapters.pop(slot).aclose()


SERVED_ADAPTER = RunAttribute[tuple[AgentRuns, Any]]("adapter of an agent with a run of its own")
"""The agent whose own `run` serves this run, and the thread's adapter."""


class OwnRunAdapter:
    """Runs one thread by the agent's own `run`. `adapter` is the one that `runs` would create: the bridge's, with its configuration."""

    def __init__(self, run: Callable[[RunAgentInput], Any], runs: AgentRuns, adapter: Any) -> None:
        self._run, self._runs, self._adapter = run, runs, adapter
        self.interrupt, self.aclose = adapter.interrupt, adapter.aclose

    def run(self, input: RunAgentInput) -> Any:  # noqa: A002  the adapter contract's name
        """Return what the agent's `run` returns."""
        SERVED_ADAPTER.set(current_run(), (self._runs, self._adapter))
        return self._run(input)


def has_own_run(agent: Any, base: type[Any]) -> bool:
    """Return True if the agent's `run` is not that of `base`: it is overridden, replaced or a wrapper's."""
    run = getattr(agent, "run", None)
    return callable(run) and getattr(run, "__func__", None) is not base.run
