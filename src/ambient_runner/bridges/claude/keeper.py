"""What the threads of one bridge share: its settings, the variables of every process, and what has to go when a thread is erased."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ambient_runner.bridges.claude.config import PASSED
from ambient_runner.bridges.claude.parking import ParkingLot
from ambient_runner.config import harmless_environment, is_secret_name, named_environment

if TYPE_CHECKING:
    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.record import Record
    from ambient_runner.ledger.base import ThreadKey

__all__ = ["Keeper"]

_REMEMBERED = 10_000


class Keeper:
    """Made once for a bridge."""

    def __init__(self, config: ClaudeConfig) -> None:
        self.config = config
        self.lot = ParkingLot(config.parked)
        self.base = {**harmless_environment(), **named_environment([*PASSED, *config.pass_env])}
        self.secrets = [value for name, value in config.env.items() if is_secret_name(name)]
        self._seen: OrderedDict[ThreadKey, tuple[Path | None, set[str]]] = OrderedDict()

    def saw(self, thread: ThreadKey, file: Path | None, record: Record) -> None:
        """Remember what there is of a thread outside of the ledger."""
        _, sessions = self._seen.pop(thread, (None, set[str]()))
        self._seen[thread] = (file, sessions | {one.session for one in record if one.session})
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def forget(self, thread: ThreadKey) -> None:
        """Delete the thread's file and the CLI's own transcripts of it."""
        file, sessions = self._seen.pop(thread, (None, set[str]()))
        await anyio.to_thread.run_sync(_delete, file, self._projects(), sessions)

    def _projects(self) -> Path | None:
        """Where the CLI keeps its transcripts."""
        known = {**self.base, **self.config.env}
        folder = known.get("CLAUDE_CONFIG_DIR") or (f"{known['HOME']}/.claude" if known.get("HOME") else None)
        return Path(folder) / "projects" if folder else None


def _delete(file: Path | None, projects: Path | None, sessions: set[str]) -> None:
    if file is not None:
        file.unlink(missing_ok=True)
    if projects is None or not projects.is_dir():
        return
    for session in sessions:
        for found in list(projects.glob(f"*/{session}*")):
            if found.is_dir():
                shutil.rmtree(found, ignore_errors=True)
            else:
                found.unlink(missing_ok=True)
