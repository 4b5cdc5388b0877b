"""Audiences: what the clients of each agent see. By default they depend on whether other machines can connect."""

from __future__ import annotations

import json
import logging
import re
import uuid
from typing import TYPE_CHECKING

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.errors import AudienceNotOpen, ConfigError, InvalidInput
from ambient_runner.projections.exposure import ANY_NAME, ExposureRules
from ambient_runner.protocol.events import RunAgentInput
from ambient_runner.protocol.headers import AUDIENCE_HEADER
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import Actor, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.base import PlatformBridge
    from ambient_runner.config import AudienceName, Settings
    from ambient_runner.runs.run import Agent

__all__ = ["Audiences"]

logger = logging.getLogger(__name__)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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

    async def log_summarized_tools(self, agents: Mapping[str, Agent]) -> None:
        """Log, for each agent that is `safe` by default, the tools that clients see as summaries, and how to change that.

        At the level of warnings, which Python shows also in an app that configures no log.
        """
        for name, agent in agents.items():
            rules = self.exposure_for(name)
            if rules is None or self._settings.configured_audience(name) is not None:
                continue
            tools = [tool for tool in await _tool_names(agent) if not rules.shows(tool)]
            if tools or not rules.shows_unnamed:
                logger.warning(
                    "Other machines can connect, so clients of agent %s get summaries of the arguments and results of %s. "
                    'To show one of its tools, add `exposure = { %s = "all" }` to its table in ambient.toml, or set AMBIENT_EXPOSURE; '
                    'audience = "open" shows everything but secrets.',
                    name,
                    f"its tools {', '.join(tools)}" if tools else "its tools",
                    _toml_key(tools[0]) if tools else "NAME",
                )

    def _check_history(self) -> None:
        """Raise ConfigError if clients keep a conversation of which they see only the safe part."""
        safe = [name for name in self._bridges if self._settings.configured_audience(name) == "safe"]
        if self._settings.history == "client" and safe:
            raise ConfigError(
                f"The audience of agent {safe[0]} is safe, and the history is client: clients would send the summaries they see back as "
                'the conversation. Set history = "server" or audience = "open".'
            )


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)


async def _tool_names(agent: Agent) -> list[str]:
    """Return the names of the agent's tools as far as its bridge can list them without a run."""
    names: list[str] = []
    if isinstance(agent, AgentHost):
        with isolate(f"listing the tools of agent {agent.name}"):
            names += [tool.name for tool in await agent.list_tools(_startup_run(agent.name))]
    return names


def _startup_run(agent: str) -> Run:
    """Return a Run that is not executed: it stands for a request of nobody, without a thread."""
    actor, key = Actor(), uuid.uuid4().hex
    run_input = RunAgentInput(thread_id="", run_id=key, messages=[])
    return Run(key=key, thread=actor.thread_key(""), agent=agent, actor=actor, trace_id=key, input=run_input)
