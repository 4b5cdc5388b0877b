"""What a run asks of an agent, and who can be asked: the seam between a run and the SDK's ways to run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ambient_runner.bridges.toolkit.turns import calls_of
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from ambient_runner.bridges.strands.config import StrandsAgentConfig
    from ambient_runner.bridges.toolkit.tool_schemas import Toolbox
    from ambient_runner.bridges.toolkit.turns import Incoming, Turn
    from ambient_runner.protocol.events import RunAgentInput

__all__ = ["Ask", "Driver", "natives_of"]

_PATIENCE = 0.25
"""Seconds the SDK has to end by itself when nobody wants its events any more."""
_STEPS = 3
"""Steps of the loop until tasks the SDK has cancelled are gone and generators it has dropped are closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One run as a driver sees it."""

    input: RunAgentInput
    turns: list[Turn]
    """The whole conversation."""
    incoming: Incoming
    """What of it is new."""
    tools: Toolbox
    config: StrandsAgentConfig
    memory: dict[str, Any]
    """What the run before left."""

    def call_ids(self) -> set[str]:
        """The ids of all calls the thread has."""
        return {call.id for call in calls_of(self.input.messages)}


class Driver(Protocol):
    """A way to run: a single agent, or several."""

    is_cancelled: bool
    """Whether the run was asked to end."""

    @property
    def tool_names(self) -> Collection[str]:
        """The agent's own tools: where the client has one of the same name, the agent's wins."""
        ...

    @property
    def all_tool_names(self) -> Collection[str]:
        """Those, and the tools of agents that are used as tools."""
        ...

    async def open(self, ask: Ask) -> AsyncGenerator[Any, None]:
        """The SDK's events for this run; whoever takes them closes them."""
        ...

    def stop_after_tools(self) -> None:
        """Do not ask the model again in this run."""
        ...

    def cancel(self) -> None:
        """End the run as soon as the SDK can."""
        ...

    def keep(self, *, waits: bool) -> dict[str, Any]:
        """What the next run needs to know; `waits` when this one stopped in the middle of a turn."""
        ...

    async def aclose(self) -> None: ...


@asynccontextmanager
async def natives_of(driver: Driver, ask: Ask) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
    """The SDK's events, ended well if nobody reads them to their end.

    Closing them would close only the outermost of the SDK's generators: those inside would be left to the garbage collector, and with them
    the model's connection and the running tools. Run to the end, or cancelled while they run, they all close.
    """
    natives = await driver.open(ask)
    has_ended = False
    try:
        yield natives
        has_ended = True
    finally:
        if not has_ended:
            await _wind_down(driver, natives)


async def _wind_down(driver: Driver, natives: AsyncGenerator[Any, None]) -> None:
    driver.cancel()
    with isolate("ending a Strands run early"), suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            async for _ in natives:
                pass
    for _ in range(_STEPS):
        await asyncio.sleep(0)
