"""The names of `ag_ui_strands.agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.interrupts import cancelled_answer
from ambient_runner.compat.ag_ui_strands.config import StrandsAgentConfig
from ambient_runner.strands import StrandsAgent as OwnStrandsAgent

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from ambient_runner.bridges.strands import config as own

__all__ = ["INTERRUPT_CANCELLED", "StrandsAgent", "StrandsAgentConfig"]

INTERRUPT_CANCELLED = cancelled_answer()
"""Return value of `tool_context.interrupt` for an interrupt that was cancelled. Compare it by value."""


class StrandsAgent(OwnStrandsAgent):
    """A Strands agent, graph, swarm or factory as an AG-UI agent, with the defaults of `ag_ui_strands`. Raises: ConfigError."""

    def __init__(
        self,
        agent: Any,
        name: str,
        description: str = "",
        config: own.StrandsAgentConfig | None = None,
        hooks: Sequence[Any] | None = None,
        plugins: Sequence[Any] | None = None,
        agents_by_thread: MutableMapping[str, Any] | None = None,
    ) -> None:
        super().__init__(agent, name, description, config or StrandsAgentConfig(), hooks, plugins, agents_by_thread)
