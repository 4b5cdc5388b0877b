"""LinesBridge: a command that prints text or lines of JSON, as an agent of this server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.lines.adapter import LinesAdapter
from ambient_runner.bridges.lines.config import LinesConfig
from ambient_runner.bridges.lines.launch import UNLIMITED
from ambient_runner.bridges.lines.shared import LinesBridgeState
from ambient_runner.bridges.toolkit.option_check import build_config, check_command, is_installed
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LinesBridge"]

logger = logging.getLogger(__name__)


class LinesBridge(PlatformBridge):
    """A command that prints its answer: one process per turn.

    `LinesBridge(command=["codex", "exec", "--json", "-"])`: every setting of `LinesConfig` is a keyword argument.

    Raises: ConfigError for a setting that does not exist or cannot work.
    """

    restates_messages = False
    settings_types = {"settings": LinesConfig}

    def __init__(self, command: Sequence[str] = (), **settings: Any) -> None:
        self._shared = LinesBridgeState(_build_config({**settings, "command": command}))
        logger.warning(
            "Nobody limits the files and the network of %s: it asks for no permission, and has no sandbox but its own.",
            command[0],
        )

    @property
    def config(self) -> LinesConfig:
        return self._shared.config

    def capabilities(self) -> FrameworkCapabilities:
        prints_json = self.config.format != "text"
        return FrameworkCapabilities(
            file_system=True,
            session_persistence=bool(self.config.resume_command),
            thinking=prints_json,
            tool_use=prints_json,
        )

    def create_adapter(self, ctx: PlatformContext) -> LinesAdapter:
        return LinesAdapter(ctx, self._shared)

    def describe_isolation(self) -> dict[str, Any]:
        """Return that nobody enforces limits."""
        return dict(UNLIMITED)


def _build_config(options: Mapping[str, Any]) -> LinesConfig:
    for name in ("command", "resume_command"):
        check_command("LinesBridge", name, options.get(name))
    config = build_config("LinesBridge", LinesConfig, options)
    config.check()
    for command in config.commands:
        if not is_installed(command[0], config.env.get("PATH")):
            raise ConfigError(f"The command {command[0]} was not found. Install it, or write its path in `command`.")
    return config
