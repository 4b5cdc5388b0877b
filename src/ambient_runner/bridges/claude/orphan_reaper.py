"""What ends the CLIs of a server that was killed: a small process beside it, which notices that it is gone.

A killed server cannot clean up, and the CLI works on until it needs it: commands go on, and the model is asked again. This file is both
sides: `watch` starts it as a program, once for a server. That program waits for the end of a pipe only the server holds, ends everything
that carries the server's mark, and itself. It needs `/proc`, so it is there on Linux only, and imports nothing of ours, to stay small.
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

__all__ = ["MARK", "end_marked", "watch"]

logger = logging.getLogger(__name__)

MARK = "AMBIENT_CHILD"
"""A variable that everything a CLI starts inherits: by it a command is found that has outlived whoever started it."""

_PROC = Path("/proc")
_MOST_FILES = 1 << 20
_QUIET_LOOKS = 5
_BETWEEN = 0.05
"""A process that was about to start another is not seen at the first look, so there are some more, this many seconds apart."""


@dataclass
class _Watched:
    """This server, as its guardian knows it."""

    server: int = field(default_factory=os.getpid)
    mark: str = field(default_factory=lambda: f"{os.getpid()}-{uuid4().hex}-")
    guardian: int | None = None
    pipe: int | None = None


_watched: list[_Watched] = []


def watch() -> str:
    """See to it that there is a guardian. Gives what the marks of this server begin with."""
    if not _watched or _watched[-1].server != os.getpid():
        _watched.append(_Watched())
    mine = _watched[-1]
    if _PROC.is_dir() and sys.executable and not _is_running(mine.guardian):
        _start(mine)
    return mine.mark


def end_marked(beginning: str) -> int:
    """Kill every process whose mark begins so, and say how many there were. Nothing where there is no `/proc`."""
    found = _marked(f"{MARK}={beginning}".encode())
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _start(mine: _Watched) -> None:
    if mine.pipe is not None:
        os.close(mine.pipe)
    reads, mine.pipe = os.pipe()
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    command = [sys.executable, "-I", "-S", __file__, mine.mark]
    actions = [(os.POSIX_SPAWN_DUP2, reads, 0), *nothing]
    try:
        mine.guardian = os.posix_spawn(sys.executable, command, {}, file_actions=actions)
    except OSError:
        logger.warning("Nobody will end the CLIs of this server if it is killed: no process could be started for that")
    finally:
        os.close(reads)


def _is_running(pid: int | None) -> bool:
    with suppress(ChildProcessError):
        return pid is not None and os.waitpid(pid, os.WNOHANG) == (0, 0)
    return False


def _marked(beginning: bytes) -> list[int]:
    entries = [entry for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []
    return [int(entry.name) for entry in entries if _carries(entry, beginning)]


def _carries(process: Path, beginning: bytes) -> bool:
    with suppress(OSError):  # Processes come and go, and not all are ours to look at.
        return any(one.startswith(beginning) for one in (process / "environ").read_bytes().split(b"\0"))
    return False


def _guard(mark: str) -> None:
    """The guardian's whole life."""
    os.setsid()  # What is typed to stop the server is not for us: we go when it has gone.
    os.closerange(3, _MOST_FILES)  # A socket of the server that was left open to us would keep its port.
    while os.read(0, 1):
        pass
    quiet = 0
    while quiet < _QUIET_LOOKS:
        quiet = 0 if end_marked(mark) else quiet + 1
        time.sleep(_BETWEEN)


if __name__ == "__main__":
    _guard(sys.argv[1])
