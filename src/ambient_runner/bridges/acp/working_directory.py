"""The directory that an agent works in: the workspace of the thread, or an existing one that the thread is bound to.

A thread is bound once, by a setting or by the client of its first run. The directory is never deleted with the thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambient_runner.errors import InvalidInput

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.config import ACPConfig
    from ambient_runner.bridges.acp.memory import ACPMemory
    from ambient_runner.bridges.base import PlatformContext

__all__ = ["check_requested_directory", "find_directory", "is_bound_directory"]


def check_requested_directory(requested: Any, config: ACPConfig, memory: ACPMemory) -> None:
    """Return if a client may choose this directory for its thread. Raises: InvalidInput."""
    if requested is None:
        return
    if not isinstance(requested, str) or not Path(requested).is_absolute() or "\0" in requested:
        raise InvalidInput("`forwardedProps.acp.cwd` must be an absolute path.")
    path = Path(os.path.realpath(requested))
    if not any(path.is_relative_to(os.path.realpath(root)) for root in config.roots):
        raise InvalidInput("`forwardedProps.acp.cwd` is outside of the directories that this server allows (`roots`).")
    if not path.is_dir():
        raise InvalidInput("`forwardedProps.acp.cwd` is not an existing directory.")
    if memory.session and Path(memory.cwd) != path:
        raise InvalidInput("This thread works in another directory. Start a new thread for this one.")


def find_directory(requested: Any, config: ACPConfig, ctx: PlatformContext, memory: ACPMemory) -> str:
    """Return the directory of a thread: the one it is bound to, else the requested one, else that of the settings, else its workspace.

    Raises: InvalidInput if a client has chosen one of the server's own.
    """
    chosen = os.path.realpath(requested) if isinstance(requested, str) and requested else ""
    chosen = memory.cwd or chosen
    if chosen not in ("", config.cwd) and is_bound_directory(chosen, ctx) and _is_hidden(chosen, ctx):
        raise InvalidInput(
            "`forwardedProps.acp.cwd` is a directory that this server uses for other threads or its store. "
            "Choose a directory of your own."
        )
    return chosen or config.cwd or ctx.cwd_path or ctx.workspace_path or str(Path.cwd())


def _is_hidden(directory: str, ctx: PlatformContext) -> bool:
    return any(Path(directory).is_relative_to(os.path.realpath(path)) for path in ctx.hidden_paths)


def is_bound_directory(directory: str, ctx: PlatformContext) -> bool:
    """Return True if the directory is not part of the thread's workspace, whose layout may change between runs."""
    return not ctx.workspace_path or not Path(directory).is_relative_to(ctx.workspace_path)
