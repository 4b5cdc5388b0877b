"""ACPBridge: any agent that speaks the Agent Client Protocol, as an agent of this server."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from ambient_runner.bridges.acp.adapter import ACPAdapter
from ambient_runner.bridges.acp.config import ACPConfig, HomeChoice, SandboxChoice
from ambient_runner.bridges.acp.interrupts import check_answer
from ambient_runner.bridges.acp.isolation import choose_isolation
from ambient_runner.bridges.acp.memory import ACPMemory
from ambient_runner.bridges.acp.modes import parse_mode
from ambient_runner.bridges.acp.shared import ACPBridgeState
from ambient_runner.bridges.acp.working_directory import check_requested_directory
from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.held_elsewhere import is_held_elsewhere
from ambient_runner.bridges.toolkit.interrupts import resolved_interrupt_ids
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.option_check import build_config, check_choices, check_command, is_installed
from ambient_runner.errors import ConfigError, HeldElsewhere
from ambient_runner.processes.bubblewrap import check_bubblewrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.runs.run import Run

__all__ = ["ACPBridge", "ClaudeACPBridge", "CodexBridge", "GeminiBridge", "OpenCodeBridge"]

logger = logging.getLogger(__name__)


class ACPBridge(PlatformBridge):
    """An agent of the Agent Client Protocol: one process per active thread.

    `ACPBridge("codex", mode="plan")` or `ACPBridge(command=["my-agent", "--acp"])`: every option of `ACPConfig` is a keyword argument.

    Raises: ConfigError for an option that does not exist or cannot work.
    """

    restates_messages = False
    settings_types = {"settings": ACPConfig}
    default_profile: ClassVar[str] = ""

    def __init__(self, profile: str = "", command: Sequence[str] = (), **settings: Any) -> None:
        check_command("ACPBridge", "command", command)
        config = _build_config({**settings, "profile": profile or self.default_profile, "command": tuple(command)})
        self._shared = ACPBridgeState(config)
        _check_sandbox(config, self.describe_isolation())
        self.forwarded_props = config.prop_rules

    @property
    def config(self) -> ACPConfig:
        return self._shared.config

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a process outside of a run, for the agent's login."""
        return {**self._shared.profile.variables, **self._shared.base_variables}

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True, mcp=True, session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> ACPAdapter:
        return ACPAdapter(ctx, self._shared)

    def check_run(self, run: Run) -> None:
        """Refuse what cannot work, before the run starts. Raises: HeldElsewhere, InvalidInput."""
        entries = run.input.resume or ()
        if resolved_interrupt_ids(entries) and is_held_elsewhere(run.memory):
            raise HeldElsewhere
        for entry in entries:
            asked = run.answered_interrupts.get(entry.interrupt_id)
            if entry.status == "resolved" and asked is not None:
                check_answer(asked.interrupt, entry.payload)
        requested = as_object(as_object(run.input.forwarded_props).get("acp"))
        check_requested_directory(requested.get("cwd"), self.config, ACPMemory.from_stored(run.memory))

    def describe_isolation(self) -> dict[str, Any]:
        """Return who enforces the limits of the agent's files and network, in the configured mode."""
        shared = self._shared
        return choose_isolation(self.config, shared.profile, self.config.mode, shared.base_variables).describe()

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Let the agent delete its sessions of the thread in the user's own home, as far as this process knows them."""
        await self._shared.erasure.erase_thread(thread)

    async def aclose(self) -> None:
        """End all processes."""
        await self._shared.aclose()


class CodexBridge(ACPBridge):
    """Codex, through its ACP adapter."""

    default_profile = "codex"


class GeminiBridge(ACPBridge):
    """Gemini CLI."""

    default_profile = "gemini"


class OpenCodeBridge(ACPBridge):
    """OpenCode."""

    default_profile = "opencode"


class ClaudeACPBridge(ACPBridge):
    """Claude Code through its ACP adapter. `ClaudeBridge` uses Anthropic's SDK instead."""

    default_profile = "claude-acp"


def _build_config(options: Mapping[str, Any]) -> ACPConfig:
    config = build_config("ACPBridge", ACPConfig, options)
    config = replace(config, mode=parse_mode(options.get("mode", "default")))
    check_choices("ACPBridge", "home", [config.home], get_args(HomeChoice))
    check_choices("ACPBridge", "sandbox", [config.sandbox], get_args(SandboxChoice))
    config.check()
    _check_installed(config)
    return config


def _check_installed(config: ACPConfig) -> None:
    """Raise ConfigError if the agent is not installed. The first run would only fail."""
    program = config.base_command[0]
    if is_installed(program, config.env.get("PATH")):
        return
    install = config.known_agent.install
    advice = f"Install it: {install}" if install else "Install it, or correct the command."
    node = " It needs Node.js 20 or newer, which was not found either." if install and not is_installed("node") else ""
    raise ConfigError(f"The command {program} was not found. {advice}{node}")


def _check_sandbox(config: ACPConfig, isolation: Mapping[str, Any]) -> None:
    """Log that nobody limits the agent. Raises: ConfigError if that is not allowed."""
    reason = check_bubblewrap().reason
    if config.sandbox == "required" and isolation["enforcedBy"] != "bubblewrap":
        raise ConfigError(f"The agent must run in a sandbox (`sandbox`), and there is none. {reason}")
    if config.sandbox == "auto" and config.mode != "yolo" and isolation["enforcedBy"] == "nobody":
        logger.warning(
            "Nobody limits the files and the network of %s but the agent itself, which asks first. %s",
            config.known_agent.title,
            reason,
        )
