"""StrandsAgent: a Strands agent as an AG-UI agent, with or without a server."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from strands import Agent
from strands.multiagent.base import MultiAgentBase

from ambient_runner.bridges.strands.adapter import StrandsAdapter
from ambient_runner.bridges.strands.agent_clone import check_template, clone_agent
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.config_check import warn_unknown_tool_names
from ambient_runner.bridges.strands.multi_agent import MultiAgentDriver
from ambient_runner.bridges.strands.single_agent import SingleAgentDriver
from ambient_runner.bridges.toolkit.callbacks import call_hook, required_parameters
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.events import PROTOCOL_VERSION, RunError, RunStarted
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import BaseEvent, RunAgentInput

    from ambient_runner.bridges.strands.driver import Driver

__all__ = ["StrandsAgent"]

logger = logging.getLogger(__name__)

AgentFactory = Callable[..., Any]
"""Plain or async function that returns the Agent, Graph or Swarm of a thread. It gets the first run's input if it needs an argument."""


class StrandsAgent:
    """A Strands agent as an AG-UI agent.

    `agent` is a `strands.Agent`, of which each thread gets its own copy, or a factory function that returns the agent, graph or swarm of a
    thread. `run` works without a server; to serve it, use `create_strands_app` or `StrandsBridge(this)`. Without a server, at most
    `threads` threads are held in memory.
    Raises: ConfigError.
    """

    def __init__(
        self,
        agent: Agent | AgentFactory,
        name: str = "strands",
        description: str = "",
        config: StrandsAgentConfig | None = None,
        *,
        threads: int = 256,
    ) -> None:
        self.name = name
        self.description = description
        self.config = config or StrandsAgentConfig()
        self._agent = _validate_agent(agent)
        self._has_checked_names = False
        self._max_adapters = threads
        self._adapters: OrderedDict[str, StrandsAdapter] = OrderedDict()

    def create_adapter(self, *, instructions: str = "") -> StrandsAdapter:
        """Return the adapter of a new thread. `instructions` are appended to the agent's system prompt."""

        async def create_driver(run_input: RunAgentInput) -> Driver:
            driver = await self._create_driver(run_input, instructions)
            self._check_tool_names(driver, run_input)
            return driver

        return StrandsAdapter(create_driver, self.config)

    async def run(self, input_data: RunAgentInput) -> AsyncGenerator[BaseEvent, None]:
        """Yield the events of one run, from RUN_STARTED on, as models of `ag_ui.core`.

        A failure is logged and ends the run with RUN_ERROR.
        """
        thread_id, run_id = input_data.thread_id, input_data.run_id
        yield to_agui(RunStarted(thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION))
        try:
            adapter = await self._adapter_for(thread_id)
            async with aclosing(adapter.run(input_data)) as events:
                async for event in events:
                    yield event
        except RunnerError as error:
            logger.exception("Run %s on thread %s of a Strands agent failed", run_id, thread_id)
            yield to_agui(RunError(message=error.message, code=error.code))

    async def interrupt(self, thread_id: str) -> None:
        """Stop the thread's active run, if there is one."""
        if thread_id in self._adapters:
            await self._adapters[thread_id].interrupt()

    async def aclose(self) -> None:
        """Close the agents of all threads."""
        for thread_id in list(self._adapters):
            await self._evict_adapter(thread_id)

    async def _adapter_for(self, thread_id: str) -> StrandsAdapter:
        """Return the thread's adapter. The least recently used idle adapters beyond the limit are closed."""
        adapter = self._adapters.get(thread_id) or self.create_adapter()
        self._adapters[thread_id] = adapter
        self._adapters.move_to_end(thread_id)
        idle = [key for key, other in self._adapters.items() if not other.is_running and key != thread_id]
        for key in idle[: max(len(self._adapters) - self._max_adapters, 0)]:
            await self._evict_adapter(key)
        return adapter

    async def _evict_adapter(self, thread_id: str) -> None:
        with isolate(f"closing the Strands agent of thread {thread_id}"):
            await self._adapters.pop(thread_id).aclose()

    def _check_tool_names(self, driver: Driver, run_input: RunAgentInput) -> None:
        """Log unknown tool names of the configuration, once: the tools are known only when the first run starts."""
        if not self._has_checked_names:
            self._has_checked_names = True
            client_tools = {tool.name for tool in run_input.tools or ()}
            warn_unknown_tool_names(self.name, self.config, driver.all_tool_names, client_tools)

    async def _create_driver(self, run_input: RunAgentInput, instructions: str) -> Driver:
        agent = await self._create_agent(run_input, instructions)
        if isinstance(agent, Agent):
            return SingleAgentDriver(agent)
        if isinstance(agent, MultiAgentBase):
            return MultiAgentDriver(agent, lambda: self._create_agent(run_input, instructions))
        raise ConfigError(
            f"The factory of agent {self.name!r} returned a {type(agent).__name__}. Return a Strands agent, graph or swarm."
        )

    async def _create_agent(self, run_input: RunAgentInput, instructions: str) -> Any:
        if isinstance(self._agent, Agent):
            provider = self.config.session_manager_provider
            session = await call_hook(provider, run_input) if provider else None
            return clone_agent(self._agent, session_manager=session, instructions=instructions)
        return await call_hook(self._agent, *([run_input] if required_parameters(self._agent) else []))


def _validate_agent(agent: Any) -> Agent | AgentFactory:
    """Return the agent or factory. Raises: ConfigError."""
    if isinstance(agent, Agent):
        check_template(agent)
        return agent
    if isinstance(agent, MultiAgentBase):
        raise ConfigError("Pass a function that returns the graph or swarm: every thread needs its own.")
    if not callable(agent):
        raise ConfigError(f"Pass a Strands agent or a function that returns one, not a {type(agent).__name__}.")
    return cast("AgentFactory", agent)
