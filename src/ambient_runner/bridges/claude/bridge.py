"""The Claude bridge: what the server makes adapters with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.errors import needing

with needing("claude_agent_sdk", install="ambient-runner[claude]"):
    from ambient_runner.bridges.claude.conversation import Conversation

from ambient_runner.bridges.claude.config import ClaudeConfig
from ambient_runner.bridges.claude.keeper import Keeper

if TYPE_CHECKING:
    from ambient_runner.ledger.base import ThreadKey

__all__ = ["ClaudeBridge"]


class ClaudeBridge(PlatformBridge):
    """Claude as an agent of this server: one CLI process for each thread that is in use.

    Every setting of `ClaudeConfig` can be given by name, such as `ClaudeBridge(permission_mode="plan")`.
    """

    def __init__(self, **settings: Any) -> None:
        self._keeper = Keeper(ClaudeConfig(**settings))

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(file_system=True, mcp=True, session_persistence=True, thinking=True)

    def create_adapter(self, ctx: PlatformContext) -> Conversation:
        return Conversation(ctx, self._keeper)

    async def forget(self, thread: ThreadKey) -> None:
        """Delete what this process knows of the thread in the workspace and in the CLI's own files."""
        await self._keeper.forget(thread)
