"""RoutedBridge: serves the agent that an `agent_resolver` has chosen for each request, by its own `run` if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import PlatformBridge
from ambient_runner.compat.ag_ui_adk.adk_agent import create_agent_adapter
from ambient_runner.compat.ag_ui_adk.run_bridge import AgUiBridge, current_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.base import FrameworkCapabilities, PlatformContext
    from ambient_runner.compat.ag_ui_adk.adk_agent import ADKAgent
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["RoutedBridge"]


class RoutedBridge(PlatformBridge):
    """The agents of an endpoint; `agent` is the default one."""

    restates_messages = AgUiBridge.restates_messages
    corrects_history = AgUiBridge.corrects_history
    hidden_state = AgUiBridge.hidden_state

    def __init__(self, agent: ADKAgent) -> None:
        self._agent = agent

    def capabilities(self) -> FrameworkCapabilities:
        return self._agent.bridge.capabilities()

    def create_adapter(self, ctx: PlatformContext) -> RoutedAdapter:
        return RoutedAdapter(self._agent, ctx)

    async def erase_thread(self, thread: ThreadKey) -> None:
        await self._agent.bridge.erase_thread(thread)

    async def aclose(self) -> None:
        await self._agent.bridge.aclose()


class RoutedAdapter:
    """Runs of one thread, each on the adapter of its own agent."""

    def __init__(self, agent: ADKAgent, ctx: PlatformContext) -> None:
        self._agent = agent
        self._ctx = ctx
        self._adapters: dict[ADKAgent, Any] = {}
        self._active: Any = None

    def run(self, input: RunAgentInput) -> AsyncGenerator[Any, None]:  # noqa: A002  the adapter contract's name
        request = current_request.get()
        agent = request.agent if request else self._agent
        if agent not in self._adapters:
            self._adapters[agent] = create_agent_adapter(agent, self._ctx)
        self._active = self._adapters[agent]
        return self._active.run(input)

    async def interrupt(self) -> None:
        if self._active is not None:
            await self._active.interrupt()

    async def aclose(self) -> None:
        for adapter in self._adapters.values():
            await adapter.aclose()
