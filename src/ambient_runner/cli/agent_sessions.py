"""`ambient agents sessions`: print the sessions that a command-line agent has in the user's own home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import typer
from rich.console import Console
from rich.text import Text

from ambient_runner.bridges.acp.messages import as_list
from ambient_runner.bridges.acp.session_start import has_ability
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.agent_process import load_command_line_agent, open_agent
from ambient_runner.cli.columns import align_columns
from ambient_runner.cli.text_format import to_single_line

if TYPE_CHECKING:
    from ambient_runner.bridges.acp.bridge import ACPBridge
    from ambient_runner.cli.agent_process import AgentProcess
    from ambient_runner.config import Settings

__all__ = ["list_sessions"]

_LIST_TIMEOUT = 60.0
"""Seconds for one page."""
_MAX_SESSIONS = 1000
_MAX_PAGES = 100


class _Listing(NamedTuple):
    """Sessions of an agent. `is_complete`: there are no more."""

    sessions: list[dict[str, Any]]
    is_complete: bool


def list_sessions(settings: Settings, name: str, cwd: str | None) -> int:
    """Print a table of sessions, in the agent's order, and return the exit code. Raises: ConfigError, ACPError."""
    listing = anyio.run(_read_sessions, load_command_line_agent(settings, name), name, cwd)
    if listing is None:
        typer.echo(f"{name} does not offer a list of its sessions.", err=True)
        return 1
    console = Console(highlight=False)
    if not listing.sessions:
        console.print(to_single_line(f"{name} has no sessions{f' in {cwd}' if cwd else ''}."), markup=False)
        return 0
    header = [Text(title, style="dim") for title in ("session", "title", "updated", "folder")]
    for line in align_columns([header, *(_session_row(session) for session in listing.sessions)]):
        console.print(line, soft_wrap=True)
    if not listing.is_complete:
        typer.echo(f"There are more than these {len(listing.sessions)}. Choose a folder with --cwd.", err=True)
    return 0


def _session_row(session: dict[str, Any]) -> list[Text]:
    return [Text(to_single_line(str(session.get(key) or ""))) for key in ("sessionId", "title", "updatedAt", "cwd")]


async def _read_sessions(bridge: ACPBridge, name: str, cwd: str | None) -> _Listing | None:
    """Return None if the agent does not list its sessions. Raises: ConfigError, ACPError."""
    async with open_agent(bridge, name) as agent:
        return await _read_pages(agent, {"cwd": cwd} if cwd else {}) if has_ability(agent.answer, "list") else None


async def _read_pages(agent: AgentProcess, params: dict[str, Any]) -> _Listing:
    """Read one page after the other, within bounds: an agent may send the same one for ever."""
    sessions: list[dict[str, Any]] = []
    cursor: Any = None
    for _ in range(_MAX_PAGES):
        position = {} if cursor is None else {"cursor": cursor}
        page = as_object(await agent.call("session/list", {**params, **position}, timeout=_LIST_TIMEOUT))
        sessions += [as_object(session) for session in as_list(page.get("sessions"))]
        cursor = page.get("nextCursor")
        if cursor is None or len(sessions) > _MAX_SESSIONS:
            break
    return _Listing(sessions[:_MAX_SESSIONS], cursor is None and len(sessions) <= _MAX_SESSIONS)
