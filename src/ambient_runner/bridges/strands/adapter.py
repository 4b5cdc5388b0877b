"""StrandsAdapter: runs of one thread of a Strands agent. `run.py` is one run.

It owns the thread's driver (`driver.py`) and keeps the memory between runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.strands.driver import DriverSlot
from ambient_runner.bridges.strands.run import StrandsRun
from ambient_runner.bridges.strands.run_input import INVOCATION_STATE
from ambient_runner.bridges.toolkit.adapter_run import stream_run
from ambient_runner.errors import ThreadBusy
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.strands.driver import Driver

__all__ = ["StrandsAdapter"]


class StrandsAdapter:
    """Runs of one thread. `create_driver` is called for the first run, and again after a run that did not complete."""

    def __init__(self, create_driver: Callable[[AguiInput], Awaitable[Driver]], config: StrandsAgentConfig) -> None:
        self._drivers = DriverSlot(create_driver)
        self._config = config
        self._run: StrandsRun | None = None
        self._memory: dict[str, Any] = {}

    @property
    def is_running(self) -> bool:
        return self._run is not None

    def run(
        self,
        input: AguiInput,  # noqa: A002  the adapter contract's name
        invocation_state: dict[str, Any] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Return the events of one run, with its terminal event but without RUN_STARTED. Raises: RunnerError."""
        return stream_run(partial(self._begin_run, invocation_state), input)

    async def interrupt(self) -> None:
        """Ask the agent to stop. It stops between two deltas of its answer or before its next step."""
        self._drivers.cancel()

    async def aclose(self) -> None:
        await self._drivers.aclose()

    async def _begin_run(self, invocation_state: dict[str, Any] | None, agui_input: AguiInput) -> StrandsRun:
        """Parse the input and find the memory of the thread. On a server that is stored with the thread. Raises: ThreadBusy."""
        current = current_run_or_none()
        if self.is_running and current is None:
            raise ThreadBusy  # on a server, only a run that did not stop and was abandoned can still be active
        stored = self._memory if current is None else current.memory or {}
        state = INVOCATION_STATE.get(current) if current is not None and invocation_state is None else invocation_state
        self._run = StrandsRun(agui_input, self._config, self._drivers, stored, state, self._end_run, self._memory)
        return self._run

    def _end_run(self, run: StrandsRun) -> None:
        self._memory = self._memory if run.memory is None else run.memory
        if self._run is run:
            self._run = None
            self._drivers.end_run()
