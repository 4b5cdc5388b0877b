"""The Claude bridge: creates the adapters of threads and checks the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.toolkit.held_elsewhere import is_held_elsewhere
from ambient_runner.bridges.toolkit.interrupts import resolved_interrupt_ids
from ambient_runner.bridges.toolkit.option_check import build_config, check_choices
from ambient_runner.errors import HeldElsewhere, optional_dependency

with optional_dependency("claude_agent_sdk", install="ambient-runner[claude]"):
    from claude_agent_sdk.types import PermissionMode, SettingSource

    from ambient_runner.bridges.claude.adapter import ClaudeAdapter
    from ambient_runner.bridges.claude.client_tools import mcp_tool_name
    from ambient_runner.bridges.claude.interrupts import check_answer
    from ambient_runner.bridges.claude.tools import list_tools

from ambient_runner.bridges.claude.config import ClaudeConfig, StateToolOffer
from ambient_runner.bridges.claude.shared import ClaudeBridgeState
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.protocol.events import Tool
    from ambient_runner.runs.run import Run

__all__ = ["ClaudeBridge"]


class ClaudeBridge(PlatformBridge):
    """Claude as an agent of this server: one CLI process per active thread.

    Every option of `ClaudeConfig` is a keyword argument, such as `ClaudeBridge(permission_mode="plan")`.

    Raises: ConfigError for an option that does not exist or cannot work.
    """

    restates_messages = False
    settings_types = {"settings": ClaudeConfig}

    def __init__(self, **settings: Any) -> None:
        config = _build_config(settings)
        self._shared = ClaudeBridgeState(config)
        self.forwarded_props = config.prop_rules

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True, mcp=True, session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> ClaudeAdapter:
        return ClaudeAdapter(ctx, self._shared)

    async def list_tools(self, ctx: PlatformContext) -> list[Tool]:
        """Return the declarations of Claude's tools, as far as they are known without a CLI process."""
        run = current_run_or_none()
        if run is not None:
            run.secrets.add(self._shared.secrets)
        return await list_tools(self._shared.config, ctx)

    def mcp_tool_name(self, server: str, tool: str) -> str:
        return mcp_tool_name(server, tool)

    def check_run(self, run: Run) -> None:
        """Refuse an answer to a CLI process of another server process, since a second Claude would ask again, and a malformed one.

        Raises: HeldElsewhere, InvalidInput.
        """
        entries = run.input.resume or ()
        if resolved_interrupt_ids(entries) and is_held_elsewhere(run.memory):
            raise HeldElsewhere
        for entry in entries:
            asked = run.answered_interrupts.get(entry.interrupt_id)
            if entry.status == "resolved" and asked is not None:
                check_answer(asked.interrupt, entry.payload)

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Delete the thread's files in the workspace and the CLI's transcripts, as far as this process knows them."""
        await self._shared.erase_thread(thread)


def _build_config(options: Mapping[str, Any]) -> ClaudeConfig:
    """Return the configuration. Values that the CLI would refuse only when the first run starts it are refused here."""
    config = build_config("ClaudeBridge", ClaudeConfig, options)
    check_choices("ClaudeBridge", "permission_mode", [config.permission_mode], get_args(PermissionMode))
    check_choices("ClaudeBridge", "setting_sources", config.setting_sources, get_args(SettingSource))
    check_choices("ClaudeBridge", "state_tool", [config.state_tool], get_args(StateToolOffer))
    return config
