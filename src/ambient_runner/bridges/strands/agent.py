"""StrandsAgent: a Strands agent as an AG-UI agent, with or without a server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from strands import Agent
from strands.multiagent import Swarm
from strands.multiagent.base import MultiAgentBase
from strands.multiagent.graph import Graph

from ambient_runner.bridges.strands.adapter import StrandsAdapter
from ambient_runner.bridges.strands.agent_clone import check_template, clone_agent
from ambient_runner.bridges.strands.config import StrandsAgentConfig
from ambient_runner.bridges.strands.config_check import warn_unknown_tool_names
from ambient_runner.bridges.strands.multi_agent import MultiAgentDriver, leaf_agents
from ambient_runner.bridges.strands.multi_agent_clone import check_multi_agent, clone_multi_agent
from ambient_runner.bridges.strands.single_agent import SingleAgentDriver
from ambient_runner.bridges.strands.tools import list_tools
from ambient_runner.bridges.toolkit.agent_runs import AgentRuns
from ambient_runner.bridges.toolkit.callbacks import call_hook, required_parameters
from ambient_runner.errors import ConfigError
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, MutableMapping, Sequence

    from ag_ui.core import BaseEvent, RunAgentInput

    from ambient_runner.bridges.strands.driver import Driver
    from ambient_runner.protocol.events import Tool

__all__ = ["StrandsAgent"]

logger = logging.getLogger(__name__)

AgentFactory = Callable[..., Any]
"""Plain or async function that returns the Agent, Graph or Swarm of a thread. It gets the first run's input if it needs an argument."""


class StrandsAgent:
    """A Strands agent as an AG-UI agent.

    `agent` is a `strands.Agent`, of which each thread gets its own copy, a graph or swarm, of which each run gets its own, or a factory
    function that returns the agent, graph or swarm of a thread. `hooks` and `plugins` are added to the agent of every thread. `run` works
    without a server; to serve it, use `create_strands_app` or `StrandsBridge(this)`. Without a server, at most `threads` threads are held
    in memory, and `agents_by_thread` is a mapping for their agents by thread id, which another StrandsAgent can use too.
    Raises: ConfigError.
    """

    def __init__(
        self,
        agent: Agent | Graph | Swarm | AgentFactory,
        name: str = "strands",
        description: str = "",
        config: StrandsAgentConfig | None = None,
        hooks: Sequence[Any] | None = None,
        plugins: Sequence[Any] | None = None,
        agents_by_thread: MutableMapping[str, Any] | None = None,
        *,
        threads: int = 256,
    ) -> None:
        self.name = name
        self.description = description
        self.config = config or StrandsAgentConfig()
        self._agent = _validate_agent(agent)
        self._hooks, self._plugins = tuple(hooks or ()), tuple(plugins or ())
        self._agents_by_thread = agents_by_thread
        self._warn_unused_options()
        self._has_checked_names = False
        self.agent_runs = AgentRuns(
            f"Strands agent {name}",
            lambda _: self.create_adapter(),
            lambda run_input: run_input.thread_id,
            max_threads=threads,
        )

    def create_adapter(self, *, instructions: str = "", config: StrandsAgentConfig | None = None) -> StrandsAdapter:
        """Return the adapter of a new thread. `instructions` are appended to the agent's system prompt.

        `config` replaces the agent's configuration.
        """

        async def create_driver(run_input: RunAgentInput) -> Driver:
            driver = await self._create_driver(run_input, instructions)
            self._check_tool_names(driver, run_input)
            return driver

        return StrandsAdapter(create_driver, config or self.config)

    def run(
        self, input_data: RunAgentInput, invocation_state: dict[str, Any] | None = None
    ) -> AsyncGenerator[BaseEvent, None]:
        """Yield the events of one run, from RUN_STARTED on, as models of `ag_ui.core`.

        `invocation_state` is passed to the agent, whose tools and hooks can read it. A failure is logged and ends the run with RUN_ERROR.
        """

        def start(adapter: StrandsAdapter) -> AsyncGenerator[Any, None]:
            return adapter.run(input_data, invocation_state)

        return self.agent_runs.stream(input_data, start)

    async def list_tools(self) -> list[Tool]:
        """Return the declarations of the agent's own tools; nothing for a factory that requires the input of a run."""
        if isinstance(self._agent, Agent | MultiAgentBase):
            return list_tools(self._agent, self._plugins)
        if required_parameters(self._agent):
            return []
        agent = await call_hook(self._agent)
        try:
            return list_tools(agent)
        finally:
            for each in leaf_agents(agent):
                await each.shutdown_async()

    async def interrupt(self, thread_id: str) -> None:
        """Stop the thread's active run, if there is one."""
        await self.agent_runs.interrupt(thread_id)

    async def aclose(self) -> None:
        """Close the agents of all threads."""
        await self.agent_runs.aclose()

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
        if isinstance(self._agent, Graph | Swarm):
            return clone_multi_agent(self._agent)
        if isinstance(self._agent, Agent):
            return await self._create_thread_agent(self._agent, run_input, instructions)
        return await call_hook(self._agent, *([run_input] if required_parameters(self._agent) else []))

    async def _create_thread_agent(self, template: Agent, run_input: RunAgentInput, instructions: str) -> Agent:
        """Return the agent of a thread: from the user's mapping, if it has one, else a copy of the template. Raises: ConfigError."""
        shared = self._agents_by_thread if current_run_or_none() is None else None
        if shared is not None and run_input.thread_id in shared:
            return shared[run_input.thread_id]
        provider, arguments = self.config.session_manager_provider, self.config.thread_agent_kwargs
        agent = clone_agent(
            template,
            session_manager=await call_hook(provider, run_input) if provider else None,
            instructions=instructions,
            hooks=self._hooks,
            plugins=self._plugins,
            overrides=await call_hook(arguments, run_input) if arguments else {},
        )
        if shared is not None:
            shared[run_input.thread_id] = agent
        return agent

    def _warn_unused_options(self) -> None:
        is_used = self._hooks or self._plugins or self._agents_by_thread is not None
        if is_used and not isinstance(self._agent, Agent):
            logger.warning(
                "hooks, plugins and agents_by_thread of agent %s have no effect: they are for a single strands.Agent. "
                "Add hooks and plugins where the agents are created.",
                self.name,
            )


def _validate_agent(agent: Any) -> Agent | Graph | Swarm | AgentFactory:
    """Return the agent or factory. Raises: ConfigError."""
    if isinstance(agent, Agent):
        check_template(agent)
        return agent
    if isinstance(agent, MultiAgentBase):
        check_multi_agent(agent)
        return cast("Graph | Swarm", agent)
    if not callable(agent):
        raise ConfigError(f"Pass a Strands agent or a function that returns one, not a {type(agent).__name__}.")
    return cast("AgentFactory", agent)
