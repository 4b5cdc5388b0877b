"""The Claude bridge: what the server makes adapters with."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.errors import ConfigError, needing

with needing("claude_agent_sdk", install="ambient-runner[claude]"):
    from claude_agent_sdk.types import PermissionMode, SettingSource

    from ambient_runner.bridges.claude.adapter import Conversation

from ambient_runner.bridges.claude.config import ClaudeConfig
from ambient_runner.bridges.claude.shared import Keeper
from ambient_runner.config.loader import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.ledger.base import ThreadKey

__all__ = ["ClaudeBridge"]


class ClaudeBridge(PlatformBridge):
    """Claude as an agent of this server: one CLI process for each thread that is in use.

    Every setting of `ClaudeConfig` can be given by name, such as `ClaudeBridge(permission_mode="plan")`.

    Raises: ConfigError for a setting that does not exist or cannot work.
    """

    def __init__(self, **settings: Any) -> None:
        self._keeper = Keeper(_config(settings))

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True, mcp=True, session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> Conversation:
        return Conversation(ctx, self._keeper)

    async def forget(self, thread: ThreadKey) -> None:
        """Delete what this process knows of the thread in the workspace and in the CLI's own files."""
        await self._keeper.forget(thread)


def _config(settings: Mapping[str, Any]) -> ClaudeConfig:
    known = [field.name for field in fields(ClaudeConfig)]
    for name in settings:
        if name not in known:
            hint = nearest(name, known, 0.6) or f" The settings are {', '.join(sorted(known))}."
            raise ConfigError(f"ClaudeBridge has no setting {name!r}.{hint}")
    config = ClaudeConfig(**settings)
    _check("permission_mode", [config.permission_mode], get_args(PermissionMode))
    _check("setting_sources", config.setting_sources, get_args(SettingSource))
    return config


def _check(name: str, given: Iterable[object], allowed: tuple[str, ...]) -> None:
    """The CLI would refuse it only when the first run starts it."""
    for value in given:
        if value not in allowed:
            choices = ", ".join(repr(one) for one in sorted(allowed))
            raise ConfigError(f"{name} of ClaudeBridge cannot be {value!r}. Use one of {choices}.")
