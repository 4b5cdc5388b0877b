"""The start of a turn: its directory, its home, its variables and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.provider import ProviderContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.base import PlatformContext
    from ambient_runner.bridges.lines.config import LinesConfig
    from ambient_runner.bridges.lines.shared import LinesBridgeState
    from ambient_runner.bridges.toolkit.run_context import RunContext

__all__ = ["UNLIMITED", "build_context", "find_directory", "find_thread_home"]

UNLIMITED = {"enforcedBy": "nobody", "files": "not limited", "network": "not limited"}
"""The limits of a command, as clients are informed of them: it can do what the user that runs the server can."""


def find_directory(config: LinesConfig, ctx: PlatformContext) -> str:
    """Return the directory that the command works in: that of the settings, else the one of the thread."""
    return config.cwd or ctx.cwd_path or ctx.workspace_path or str(Path.cwd())


def find_thread_home(config: LinesConfig, ctx: PlatformContext) -> Path | None:
    """Return the home directory that belongs to the thread; None if the command uses the user's own."""
    is_own = config.home == "thread" or (config.home == "auto" and ctx.serves_others)
    return Path(ctx.workspace_path) / ".ambient" / "home-lines" if is_own and ctx.workspace_path else None


def build_context(
    shared: LinesBridgeState,
    ctx: PlatformContext,
    context: RunContext,
    command: Sequence[str],
    *,
    prompt: str,
    session_id: str = "",
) -> ProviderContext:
    """Return what a turn is started with. It has the variables that were granted to the run, and no others of the server."""
    directory, home = find_directory(shared.config, ctx), find_thread_home(shared.config, ctx)
    granted = context.run.environment if context.run is not None else {}
    return ProviderContext(
        command=tuple(command),
        environment={
            **shared.base_variables,
            **granted,
            **({"HOME": str(home)} if home is not None else {}),
            "PWD": directory,
        },
        cwd=directory,
        prompt=prompt,
        thread_id=context.run_input.thread_id,
        session_id=session_id,
    )
