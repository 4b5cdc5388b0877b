"""The file by which a command reports the end of its turn, in a private directory of the turn.

Each turn has a file of its own: a line that was meant for an earlier turn is in no file that is read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from ambient_runner.bridges.lines.config import NotifyKind

__all__ = ["NOTIFY_VARIABLE", "NotifyFile"]

NOTIFY_VARIABLE = "AMBIENT_NOTIFY"
"""The variable that has the path of the file."""

_NAME = "notify"
_MAX_BYTES = 1 << 16
_TURN_COMPLETE = "agent-turn-complete"
"""The notification of codex at the end of a turn. Its other notifications have other types."""


class NotifyFile:
    """A file or FIFO that a command writes a line to. Every method blocks for a moment at most."""

    def __init__(self, kind: NotifyKind) -> None:
        """Create the file. Raises: OSError."""
        self._directory = Path(tempfile.mkdtemp(prefix="ambient-"))
        self.path = self._directory / _NAME
        self._fds: list[int] = []
        self._content = b""
        if kind == "fifo":
            os.mkfifo(self.path, 0o600)
            # The second one keeps the FIFO open, so that a command can open and close it any number of times.
            self._fds = [os.open(self.path, flags | os.O_NONBLOCK) for flags in (os.O_RDONLY, os.O_WRONLY)]
        else:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def has_turn_end(self) -> bool:
        """Return True if a line reports the end of the turn. One without its end counts when it has not changed since the last call."""
        before, self._content = self._content, self._read()
        *lines, rest = self._content.split(b"\n")
        return any(map(_is_turn_end, lines)) or (self._content == before and _is_turn_end(rest))

    def close(self) -> None:
        """Remove the file with its directory."""
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _read(self) -> bytes:
        """Return what was written so far. A file may have been replaced; a link is not followed."""
        if self._fds:
            with suppress(BlockingIOError):
                return (self._content + os.read(self._fds[0], _MAX_BYTES))[-_MAX_BYTES:]
            return self._content
        with suppress(OSError):
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return os.read(fd, _MAX_BYTES)
            finally:
                os.close(fd)
        return b""


def _is_turn_end(line: bytes) -> bool:
    """Return True for any line that is not blank, but a notification about something else."""
    if not line.strip():
        return False
    try:
        kind = as_object(msgspec.json.decode(line)).get("type")
    except (msgspec.MsgspecError, RecursionError):
        return True
    return not isinstance(kind, str) or kind == _TURN_COMPLETE
