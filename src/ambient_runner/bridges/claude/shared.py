"""State shared by all threads of a ClaudeBridge, and the limit on processes that wait for a person."""

from __future__ import annotations

import glob
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio

from ambient_runner.bridges.claude.config import PASSED
from ambient_runner.config import harmless_environment, is_secret_name, named_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.memory import Record
    from ambient_runner.bridges.claude.session import Session
    from ambient_runner.ledger.base import ThreadKey

__all__ = ["Keeper", "ParkingLot"]

_REMEMBERED = 10_000


class Keeper:
    """Made once for a bridge."""

    def __init__(self, config: ClaudeConfig) -> None:
        self.config = config
        self.lot = ParkingLot(config.parked)
        self.base = {**harmless_environment(), **named_environment([*PASSED, *config.pass_env])}
        own = config.options.env if config.options else {}
        self._always = {**self.base, **own, **config.env}
        self.secrets = _secrets(self._always)
        """What every process has and nobody may see."""
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
        known = self._always
        folder = known.get("CLAUDE_CONFIG_DIR") or (f"{known['HOME']}/.claude" if known.get("HOME") else None)
        return Path(folder) / "projects" if folder else None


def _secrets(variables: Mapping[str, str]) -> list[str]:
    """Values that are secret by their name, and passwords in addresses."""
    named = [value for name, value in variables.items() if is_secret_name(name)]
    passwords = [_password(value) for value in variables.values()]
    return [*named, *(form for password in passwords for form in (password, unquote(password)) if form)]


def _password(address: str) -> str:
    try:
        return urlsplit(address).password or ""
    except ValueError:
        return ""


def _delete(file: Path | None, projects: Path | None, sessions: set[str]) -> None:
    if file is not None:
        _remove(file)
    if projects is None or not projects.is_dir():
        return
    for session in sessions:
        for found in list(projects.glob(f"*/{glob.escape(session)}*")):
            _remove(found)


def _remove(path: Path) -> None:
    """Whatever is there; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class ParkingLot:
    """The processes that wait, and how many questions each has open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parked: dict[Session, int] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def enter(self, session: Session) -> bool:
        """Whether there is room for a question of this process."""
        if session not in self._parked and len(self._parked) >= self._limit:
            return False
        self._parked[session] = self._parked.get(session, 0) + 1
        return True

    def leave(self, session: Session) -> None:
        self._parked[session] -= 1
        if not self._parked[session]:
            del self._parked[session]
