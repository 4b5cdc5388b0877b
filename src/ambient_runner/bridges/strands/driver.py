"""Driver: the interface between a run and the SDK's ways to execute it.

`single_agent.py` drives one agent, `multi_agent.py` a graph or a swarm.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

    from ag_ui.core import RunAgentInput as AguiInput

    from ambient_runner.bridges.strands.run_input import RunContext

__all__ = ["Driver", "DriverSlot", "open_native_stream"]

_DRAIN_TIMEOUT = 0.25
"""Seconds the SDK has to end on its own after its events are no longer read."""
_CLEANUP_STEPS = 3
"""Iterations of the event loop until cancelled tasks of the SDK have ended and its abandoned generators are closed."""


class Driver(Protocol):
    """Executes runs of one thread: with a single agent, or with several."""

    is_stopping: bool
    """True if the run has been requested to stop."""

    @property
    def tool_names(self) -> Collection[str]:
        """The agent's own tools. The configuration decides which of them a client may execute."""
        ...

    @property
    def all_tool_names(self) -> Collection[str]:
        """The agent's own tools, and the tools of agents that are used as tools."""
        ...

    async def open_stream(self, context: RunContext) -> AsyncGenerator[Any, None]:
        """Start the run and return the SDK's events. The caller closes them."""
        ...

    def stop_after_tools(self) -> None:
        """Do not call the model again in this run."""
        ...

    def cancel(self) -> None:
        """Stop the run as soon as the SDK can."""
        ...

    def dump_memory(self, *, is_paused: bool) -> dict[str, Any]:
        """Return the data the next run needs. `is_paused` is True if this run stopped in the middle of a turn."""
        ...

    async def aclose(self) -> None: ...


class DriverSlot:
    """The driver of one thread. `create` is called for the first run, and again after a run that did not complete."""

    def __init__(self, create: Callable[[AguiInput], Awaitable[Driver]]) -> None:
        self._create = create
        self._idle: Driver | None = None
        self._running: Driver | None = None

    async def acquire(self, agui_input: AguiInput) -> Driver:
        """Return the driver for a run. It is lost unless it is put back."""
        self._running = driver = self._idle or await self._create(agui_input)
        driver.is_stopping = False
        self._idle = None
        return driver

    def detach(self, driver: Driver) -> None:
        """Stop cancelling this driver: its run has ended, and the SDK would cancel the next one."""
        if self._running is driver:
            self._running = None

    def put_back(self, driver: Driver) -> None:
        """Keep the driver for the next run."""
        self._idle = driver

    def cancel(self) -> None:
        """Cancel the active run, if there is one."""
        if self._running is not None:
            self._running.cancel()

    def end_run(self) -> None:
        """Forget the driver of the active run."""
        self._running = None

    async def aclose(self) -> None:
        driver, self._idle = self._idle, None
        if driver is not None:
            await driver.aclose()


@asynccontextmanager
async def open_native_stream(driver: Driver, context: RunContext) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
    """Open the SDK's events and end the SDK's run in order if they are not read to their end.

    Closing the stream would close only the outermost of the SDK's generators. The inner ones would be left to the garbage collector, and
    with them the connection to the model and the running tools. They all close when the stream runs to its end or is cancelled inside.
    """
    natives = await driver.open_stream(context)
    has_ended = False
    try:
        yield natives
        has_ended = True
    finally:
        if not has_ended:
            await _drain_native_stream(driver, natives)


async def _drain_native_stream(driver: Driver, natives: AsyncGenerator[Any, None]) -> None:
    driver.cancel()
    with isolate("ending a Strands run early"), suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            async for _ in natives:
                pass
    for _ in range(_CLEANUP_STEPS):
        await asyncio.sleep(0)
