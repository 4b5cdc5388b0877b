"""Audiences: what the clients of each agent see. By default they depend on whether other machines can connect."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from ambient_runner.bridges.base import ListsTools, PlatformContext
from ambient_runner.errors import AudienceNotOpen, ConfigError, InvalidInput
from ambient_runner.projections.exposure import ANY_NAME, ExposureRules
from ambient_runner.protocol.headers import AUDIENCE_HEADER
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.config import AudienceName, Settings

__all__ = ["Audiences"]

logger = logging.getLogger(__name__)

_LIST_TIMEOUT = 30.0
"""Seconds a bridge has to list its tools for the log."""


class Audiences:
    """The audience of each agent's clients, and the exposure rules of those that see only the safe part.

    `renders_tools`: these endpoints promise that tools are rendered, so without a setting nothing of them is summarised.
    """

    def __init__(
        self,
        settings: Settings,
        bridges: Mapping[str, PlatformBridge],
        *,
        serves_others: bool = False,
        renders_tools: bool = False,
    ) -> None:
        self._settings = settings
        self._bridges = bridges
        self._serves_others = serves_others
        self._renders_tools = renders_tools
        self._check_history()

    def name_for(self, agent: str) -> AudienceName:
        """Return the audience of the agent's clients, also of an agent that is no longer served."""
        return self._settings.audience_for(agent, serves_others=self._serves_others)

    def exposure_for(self, agent: str) -> ExposureRules | None:
        """Return the rules of the agent's audience if that is `safe`; None if it is `open`."""
        if self.name_for(agent) == "open":
            return None
        bridge = self._bridges.get(agent)
        rules = self._settings.exposure_of(agent, bridge.exposure if bridge else {})
        if self._renders_tools and self._settings.configured_audience(agent) is None:
            rules.setdefault(ANY_NAME, "all")
        return ExposureRules(by_name=rules)

    def require(self, agent: str, required: str | None) -> None:
        """Return if clients of the agent see what a request requires. Raises: AudienceNotOpen, InvalidInput."""
        if required not in {None, "open"}:
            raise InvalidInput(f"{AUDIENCE_HEADER} can only be open.")
        if required == "open" and self.name_for(agent) != "open":
            raise AudienceNotOpen

    async def log_summarized_tools(self) -> None:
        """Log, for each agent that is `safe` by default, the tools that clients see as summaries, and how to change that."""
        for name, bridge in self._bridges.items():
            rules = self.exposure_for(name)
            if rules is None or self._settings.configured_audience(name) is not None:
                continue
            tools = [tool for tool in await _tool_names(name, bridge) if not rules.shows(tool)]
            if tools or not rules.shows_unnamed:
                logger.info(
                    "Other machines can connect, so clients of agent %s get summaries of the arguments and results of %s. "
                    'To show one of its tools, add `exposure = { %s = "all" }` to its table in ambient.toml, or set AMBIENT_EXPOSURE; '
                    'audience = "open" shows everything but secrets',
                    name,
                    f"its tools {', '.join(tools)}" if tools else "its tools",
                    tools[0] if tools else "NAME",
                )

    def _check_history(self) -> None:
        """Raise ConfigError if clients keep a conversation of which they see only the safe part."""
        safe = [name for name in self._bridges if self._settings.configured_audience(name) == "safe"]
        if self._settings.history == "client" and safe:
            raise ConfigError(
                f"The audience of agent {safe[0]} is safe, and the history is client: clients would send the summaries they see back as "
                'the conversation. Set history = "server" or audience = "open".'
            )


async def _tool_names(agent: str, bridge: PlatformBridge) -> list[str]:
    """Return the names of the agent's tools as far as its bridge can list them without a run."""
    names: list[str] = []
    if isinstance(bridge, ListsTools):
        with isolate(f"listing the tools of agent {agent}"), anyio.move_on_after(_LIST_TIMEOUT):
            names += [tool.name for tool in await bridge.list_tools(PlatformContext())]
    return names
