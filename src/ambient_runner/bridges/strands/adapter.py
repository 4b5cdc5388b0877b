"""StrandsAdapter: runs of one thread of a Strands agent.

It owns the thread's driver (`driver.py`) and keeps the data the next run needs. `run.py` executes a single run.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.errors import ThreadIsBusy, to_bridge_error
from ambient_runner.bridges.strands.run import StrandsRun
from ambient_runner.protocol.events import RunError
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.driver import Driver
    from ambient_runner.protocol.events import Event

__all__ = ["StrandsAdapter"]


class StrandsAdapter:
    """Runs of one thread. `create_driver` is called for the first run, and again after a run that did not complete."""

    def __init__(self, create_driver: Callable[[AguiInput], Awaitable[Driver]], config: StrandsAgentConfig) -> None:
        self._create_driver = create_driver
        self._config = config
        self._idle_driver: Driver | None = None
        self._running_driver: Driver | None = None
        self._run: StrandsRun | None = None
        self._memory: dict[str, Any] = {}

    @property
    def is_running(self) -> bool:
        return self._run is not None

    async def run(self, input: AguiInput) -> AsyncGenerator[Event, None]:  # noqa: A002  the ADR's name
        """Yield the events of one run, with RUN_FINISHED but without RUN_STARTED. Raises: BridgeError."""
        run = self._begin_run(input)
        try:
            self._running_driver = driver = self._idle_driver or await self._create_driver(input)
            driver.is_cancelled = False
            self._idle_driver = None  # if this run does not complete, the next one gets a new driver
            async with aclosing(run.events(driver, self._stored_memory())) as events:
                async for event in events:
                    yield event
            if self._running_driver is driver:
                self._running_driver = None  # nothing is left to cancel, and the SDK would cancel the next run
            for event in run.finish():
                yield event
            self._idle_driver = driver
        except Exception as error:
            known = to_bridge_error(error, force_stopped=run.force_stopped)
            for event in run.composer.close(RunError(message=known.message)):
                yield event
            if known is error:
                raise
            raise known from error
        finally:
            self._memory = self._memory if run.memory is None else run.memory
            if self._run is run:
                self._run = self._running_driver = None

    async def interrupt(self) -> None:
        """Ask the agent to stop. It stops between two deltas of its answer or before its next step."""
        if self._running_driver is not None:
            self._running_driver.cancel()

    async def aclose(self) -> None:
        driver, self._idle_driver = self._idle_driver, None
        if driver is not None:
            await driver.aclose()

    def _begin_run(self, run_input: AguiInput) -> StrandsRun:
        """Parse the input and return its run. Raises: ThreadIsBusy."""
        if self.is_running and current_run_or_none() is None:
            raise ThreadIsBusy  # on a server, only a run that did not stop and was abandoned can still be active
        self._run = StrandsRun(run_input, self._config)
        return self._run

    def _stored_memory(self) -> dict[str, Any]:
        """Return the data the previous run stored. On a server it is in the thread and survives a restart."""
        run = current_run_or_none()
        return self._memory if run is None else run.memory or {}
