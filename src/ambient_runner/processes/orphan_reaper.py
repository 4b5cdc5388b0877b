"""Kill the child processes of a server that was killed: a small process next to it that notices its end.

A killed server cannot clean up, and an agent it started continues until it needs the server: commands run, and the model is called again.
This file has both sides: `ensure_reaper` starts it as a program, once per server. That program waits for the end of a pipe that only the
server holds, kills every process with the server's mark, and exits. It needs `/proc`, so it exists on Linux only, and imports nothing of
ours, to stay small.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

__all__ = ["MARK", "create_mark", "ensure_reaper", "kill_marked"]

logger = logging.getLogger(__name__)

MARK = "AMBIENT_CHILD"
"""A variable that everything a child process starts inherits: it identifies a command that has outlived its parent."""

_PROC = Path("/proc")
_MAX_FILES = 1 << 20
_QUIET_SCANS = 5
"""Scans without a process that the reaper makes before it exits: a process that is about to start another is easily missed."""
_SCAN_INTERVAL = 0.05  # seconds


@dataclass
class _Reaper:
    """The reaper of this server."""

    server: int = field(default_factory=os.getpid)
    mark: str = field(default_factory=lambda: f"{os.getpid()}-{uuid4().hex}-")
    pid: int | None = None
    pipe: int | None = None


_reapers: list[_Reaper] = []


def ensure_reaper() -> str:
    """Start the reaper unless it runs. Return the prefix of this server's marks."""
    if not _reapers or _reapers[-1].server != os.getpid():
        _reapers.append(_Reaper())
    reaper = _reapers[-1]
    if _PROC.is_dir() and sys.executable and not _is_running(reaper.pid):
        _start_reaper(reaper)
    return reaper.mark


def create_mark() -> str:
    """Return a mark for one child process, and make sure that the reaper runs before that process does."""
    return f"{ensure_reaper()}{uuid4().hex}"


def kill_marked(prefix: str) -> int:
    """Kill every process whose mark begins with the prefix. Return their number; 0 without `/proc`."""
    pids = _find_marked(f"{MARK}={prefix}".encode())
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _start_reaper(reaper: _Reaper) -> None:
    if reaper.pipe is not None:
        os.close(reaper.pipe)
    read_end, reaper.pipe = os.pipe()
    to_null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    command = [sys.executable, "-I", "-S", __file__, reaper.mark]
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), *to_null]
    try:
        reaper.pid = os.posix_spawn(sys.executable, command, {}, file_actions=actions)
    except OSError:
        logger.warning(
            "The process that ends child processes after a crash of this server could not be started. "
            "If the server is killed, end its agents by hand."
        )
    finally:
        os.close(read_end)


def _is_running(pid: int | None) -> bool:
    with suppress(ChildProcessError):
        return pid is not None and os.waitpid(pid, os.WNOHANG) == (0, 0)
    return False


def _find_marked(variable: bytes) -> list[int]:
    entries = [entry for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []
    return [int(entry.name) for entry in entries if _has_variable(entry, variable)]


def _has_variable(process: Path, variable: bytes) -> bool:
    with suppress(OSError):  # Processes come and go, and we may not read all of them.
        return any(item.startswith(variable) for item in (process / "environ").read_bytes().split(b"\0"))
    return False


def _run_reaper(mark: str) -> None:
    """Wait for the end of the server, then kill its processes. This is the whole program."""
    os.setsid()  # A signal typed to stop the server is not for us: we exit after it.
    os.closerange(3, _MAX_FILES)  # An inherited socket of the server would keep its port in use.
    while os.read(0, 1):
        pass
    quiet_scans = 0
    while quiet_scans < _QUIET_SCANS:
        quiet_scans = 0 if kill_marked(mark) else quiet_scans + 1
        time.sleep(_SCAN_INTERVAL)


if __name__ == "__main__":
    _run_reaper(sys.argv[1])
