"""Private directories for the sockets of a child process, with short paths. A killed server leaves its own; the next one deletes them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["make_socket_directory"]

_PREFIX = "ambient-sockets-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-.*")


def make_socket_directory() -> Path:
    """Create a directory that only this user may enter. The caller deletes it. Blocks. Raises: OSError."""
    _delete_abandoned()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


@cache
def _delete_abandoned() -> None:
    """Delete the directories of processes that are gone, once."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        found = _NAME.fullmatch(directory.name)
        if found and directory.is_dir() and not directory.is_symlink() and not _is_running(int(found[1])):
            shutil.rmtree(directory, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
