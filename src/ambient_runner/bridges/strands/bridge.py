"""The Strands bridge: what the server makes adapters with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.errors import needing

with needing("strands", install="ambient-runner[strands]"):
    from ambient_runner.bridges.strands.agent import StrandsAgent

if TYPE_CHECKING:
    from ambient_runner.bridges.strands.adapter import Conversation
    from ambient_runner.bridges.strands.config import StrandsAgentConfig

__all__ = ["StrandsBridge"]


class StrandsBridge(PlatformBridge):
    """A Strands agent as an agent of this server.

    `agent` is a StrandsAgent, or what one is made of: a `strands.Agent`, or a function that makes an agent, graph or swarm. Without one
    it is a plain Strands agent with the SDK's default model.
    Raises: ConfigError.
    """

    def __init__(self, agent: Any = None, config: StrandsAgentConfig | None = None) -> None:
        self._agent = agent if isinstance(agent, StrandsAgent) else StrandsAgent(agent or _plain, config=config)
        self.default_prompt = self._agent.config.default_prompt

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(
            thinking=True, session_persistence=self._agent.config.session_manager_provider is not None
        )

    def create_adapter(self, ctx: PlatformContext) -> Conversation:
        return self._agent.conversation(instructions=ctx.system_prompt_append)


def _plain() -> Any:
    from strands import Agent

    return Agent(callback_handler=None)
