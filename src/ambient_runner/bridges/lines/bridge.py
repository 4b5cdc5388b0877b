"""LinesBridge: a command that prints text or lines of JSON, as an agent of this server."""

from __future__ import annotations

import logging
import shutil
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from ambient_runner.bridges.lines.adapter import LinesAdapter
from ambient_runner.bridges.lines.config import LinesConfig
from ambient_runner.bridges.lines.launch import UNLIMITED
from ambient_runner.bridges.lines.shared import LinesBridgeState
from ambient_runner.config.loader import did_you_mean
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


def _build_config(settings: Mapping[str, Any]) -> LinesConfig:
    known = [field.name for field in fields(LinesConfig)]
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known, 0.6) or f" The settings are {', '.join(sorted(known))}."
            raise ConfigError(f"LinesBridge has no setting {name!r}.{hint}")
    for name in ("command", "resume_command"):
        if isinstance(settings.get(name), str):
            raise ConfigError(f'{name} of LinesBridge must be a list of words. Write {name} = ["my-cli", "--json"].')
    config = LinesConfig(**settings)
    config.check()
    for command in config.commands:
        _check_installed(command[0], config)
    return config


def _check_installed(program: str, config: LinesConfig) -> None:
    """Raise ConfigError if the program is not there. The first run would only fail."""
    if shutil.which(program, path=config.env.get("PATH")) is None and not Path(program).is_file():
        raise ConfigError(f"The command {program} was not found. Install it, or write its path in `command`.")
