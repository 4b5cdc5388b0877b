"""StrandsBridge: serves a Strands agent. It creates one adapter per thread."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.strands.config import ClientToolRule, StrandsAgentConfig
from ambient_runner.bridges.toolkit.agent_runs import AgentRuns, OwnRunAdapter, has_own_run
from ambient_runner.errors import optional_dependency
from ambient_runner.runs.lowering import HTTPS_ONLY
from ambient_runner.runs.run import current_run

with optional_dependency("strands", install="ambient-runner[strands]"):
    from ambient_runner.bridges.strands.agent import StrandsAgent
    from ambient_runner.bridges.strands.run_input import INVOCATION_STATE

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.strands.adapter import StrandsAdapter
    from ambient_runner.protocol.events import Tool

__all__ = ["StrandsBridge", "is_strands_agent"]


class StrandsBridge(PlatformBridge):
    """Serves a Strands agent.

    `agent` is a StrandsAgent or anything its constructor accepts: a `strands.Agent`, or a factory function that returns an agent, graph or
    swarm. The default is an agent with the SDK's default model. A StrandsAgent with a `run` of its own, or a wrapper with a `run` and the
    attributes of the StrandsAgent inside, is served by that `run`. `client_tools` are those of the agent's own tools that a client may
    execute in its place, as in StrandsAgentConfig; the default is the configuration's, else none.
    Raises: ConfigError.
    """

    restates_messages = False  # Snapshots of its hooks are partial.
    settings_types = {"config": StrandsAgentConfig}

    def __init__(
        self,
        agent: Any = None,
        config: StrandsAgentConfig | None = None,
        *,
        client_tools: ClientToolRule | None = None,
    ) -> None:
        self._agent = agent if is_strands_agent(agent) else StrandsAgent(agent or _default_agent, config=config)
        self._config = _with_client_tools(self._agent.config, client_tools)
        self.default_prompt = self._config.default_prompt
        if self._config.url_fetch_policy is not None:  # `url_fetch.py` checks what it fetches.
            self.media_url_schemes = HTTPS_ONLY | self._config.url_fetch_policy.allowed_schemes

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(
            thinking=True, session_persistence=self._config.session_manager_provider is not None
        )

    def create_adapter(self, ctx: PlatformContext) -> StrandsAdapter | OwnRunAdapter:
        adapter = self._agent.create_adapter(instructions=ctx.system_prompt_append, config=self._config)
        if not has_own_run(self._agent, StrandsAgent):
            return adapter
        return OwnRunAdapter(self._start_own_run, self._agent.agent_runs, adapter)

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the declarations of the agent's own tools, from its tool registry."""
        return await self._agent.list_tools()

    def _start_own_run(self, run_input: RunAgentInput) -> Any:
        """Call the agent's own `run`, which need not accept an invocation state if there is none."""
        state = INVOCATION_STATE.get(current_run())
        return self._agent.run(run_input) if state is None else self._agent.run(run_input, invocation_state=state)


def is_strands_agent(agent: Any) -> bool:
    """Return True for a StrandsAgent, and for a wrapper with a `run` of its own and the attributes of the StrandsAgent inside."""
    return isinstance(agent, StrandsAgent) or isinstance(getattr(agent, "agent_runs", None), AgentRuns)


def _with_client_tools(config: StrandsAgentConfig, rule: ClientToolRule | None) -> StrandsAgentConfig:
    if rule is None and config.client_tools is not None:
        return config
    return dataclasses.replace(config, client_tools="declared" if rule is None else rule)


def _default_agent() -> Any:
    from strands import Agent

    return Agent(callback_handler=None)
