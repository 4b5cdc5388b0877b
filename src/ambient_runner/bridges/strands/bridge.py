"""StrandsBridge: serves a Strands agent. It creates one adapter per thread."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.strands.config import ClientToolRule, StrandsAgentConfig
from ambient_runner.errors import optional_dependency

with optional_dependency("strands", install="ambient-runner[strands]"):
    from ambient_runner.bridges.strands.agent import StrandsAgent

if TYPE_CHECKING:
    from ambient_runner.bridges.strands.adapter import StrandsAdapter

__all__ = ["StrandsBridge"]


class StrandsBridge(PlatformBridge):
    """Serves a Strands agent.

    `agent` is a StrandsAgent or anything its constructor accepts: a `strands.Agent`, or a factory function that returns an agent, graph or
    swarm. The default is an agent with the SDK's default model. `client_tools` are those of the agent's own tools that a client may execute
    in its place, as in StrandsAgentConfig; the default is the configuration's, else none.
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
        self._agent = agent if isinstance(agent, StrandsAgent) else StrandsAgent(agent or _default_agent, config=config)
        self._config = _with_client_tools(self._agent.config, client_tools)
        self.default_prompt = self._config.default_prompt

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(
            thinking=True, session_persistence=self._config.session_manager_provider is not None
        )

    def create_adapter(self, ctx: PlatformContext) -> StrandsAdapter:
        return self._agent.create_adapter(instructions=ctx.system_prompt_append, config=self._config)


def _with_client_tools(config: StrandsAgentConfig, rule: ClientToolRule | None) -> StrandsAgentConfig:
    if rule is None and config.client_tools is not None:
        return config
    return dataclasses.replace(config, client_tools="declared" if rule is None else rule)


def _default_agent() -> Any:
    from strands import Agent

    return Agent(callback_handler=None)
