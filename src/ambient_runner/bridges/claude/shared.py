"""State shared by all threads of a ClaudeBridge."""

from __future__ import annotations

import glob
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ambient_runner.bridges.claude.config import PASSED_VARIABLES
from ambient_runner.bridges.toolkit.process_limits import WaitingProcessLimit
from ambient_runner.bridges.toolkit.secret_variables import secret_values
from ambient_runner.config import base_environment, named_environment

if TYPE_CHECKING:
    from ambient_runner.bridges.claude.config import ClaudeConfig
    from ambient_runner.bridges.claude.memory import ClaudeMemory
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["ClaudeBridgeState"]

_MAX_TRACKED_THREADS = 10_000


class ClaudeBridgeState:
    """State of one bridge."""

    def __init__(self, config: ClaudeConfig) -> None:
        self.config = config
        self.waiting_limit = WaitingProcessLimit(config.max_waiting_processes)
        self.base_variables = {**base_environment(), **named_environment([*PASSED_VARIABLES, *config.pass_env])}
        """Variables of the server for every process."""
        option_variables = config.options.env if config.options else {}
        self._variables = {**self.base_variables, **option_variables, **config.env}
        self.secrets = secret_values(self._variables)
        """Secrets that every process has."""
        self._threads: OrderedDict[ThreadKey, tuple[Path | None, set[str]]] = OrderedDict()

    def track_thread(self, thread: ThreadKey, file: Path | None, memory: ClaudeMemory) -> None:
        """Remember the file and the CLI sessions of a thread, for `erase_thread`."""
        _, sessions = self._threads.pop(thread, (None, set[str]()))
        self._threads[thread] = (file, sessions | memory.session_ids)
        if len(self._threads) > _MAX_TRACKED_THREADS:
            self._threads.popitem(last=False)

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Delete the thread's file and the CLI's transcripts of it."""
        file, sessions = self._threads.pop(thread, (None, set[str]()))
        await anyio.to_thread.run_sync(_delete_thread_files, file, self._transcripts_directory(), sessions)

    def _transcripts_directory(self) -> Path | None:
        variables = self._variables
        default = f"{variables['HOME']}/.claude" if variables.get("HOME") else None
        directory = variables.get("CLAUDE_CONFIG_DIR") or default
        return Path(directory) / "projects" if directory else None


def _delete_thread_files(file: Path | None, transcripts: Path | None, sessions: set[str]) -> None:
    if file is not None:
        _delete_path(file)
    if transcripts is None or not transcripts.is_dir():
        return
    for session in sessions:
        for path in list(transcripts.glob(f"*/{glob.escape(session)}*")):
            _delete_path(path)


def _delete_path(path: Path) -> None:
    """Delete a file or directory; of a link, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
