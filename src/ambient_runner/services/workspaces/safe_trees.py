"""Whole folder trees that strangers have made: removed and measured, however deep they are.

Nothing here recurses, and no path is built that could be too long: a tree is taken apart on open folders, level by level. A link is
never followed. All functions here block: call them in a thread.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.services.workspaces.safe_files import is_folder

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["DEEPEST", "is_within", "remove_tree", "unlock"]

logger = logging.getLogger(__name__)

DEEPEST = 200
"""How many folders deep a tree may be that is measured. Tools that recurse still manage this."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 3


def remove_tree(path: Path) -> bool:
    """Whether nothing is left, also of folders that were made read-only. What cannot be removed does not save the rest."""
    failures: list[OSError] = []
    for _ in range(_TRIES):
        failures = _remove(path)
        if not failures:
            return True
    logger.warning("Something in %s could not be removed", path, exc_info=failures[0])
    return False


def _remove(path: Path) -> list[OSError]:
    """Remove once, and give what went wrong. What somebody else removes meanwhile is gone all the same."""
    failures: list[OSError] = []
    with _noted(failures):
        if not is_folder(path):
            path.unlink()
            return failures
        unlock(path)
        top = os.open(path, _OPEN)
        try:
            _empty(top, failures)
        finally:
            os.close(top)
        path.rmdir()
    return failures


def _empty(top: int, failures: list[OSError]) -> None:
    """Each folder's own folders are moved up to the top before it goes, so two folders at a time are open and no path grows."""
    waiting = _clear(top, failures)
    while waiting:
        name = waiting.pop()
        with _noted(failures):
            at = _opened(name, top)
            try:
                for inner in _clear(at, failures):
                    with _noted(failures):
                        waiting.append(_moved(inner, at, top))
            finally:
                os.close(at)
            os.rmdir(name, dir_fd=top)


def _clear(at: int, failures: list[OSError]) -> list[str]:
    """Remove what is no folder from this one; gives the names of its folders."""
    with os.scandir(at) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name in (name for name, folder in found if not folder):
        with _noted(failures):
            os.unlink(name, dir_fd=at)
    return [name for name, folder in found if folder]


def _moved(name: str, at: int, top: int) -> str:
    """The new name of a folder that now is at the top."""
    free = os.urandom(12).hex()
    try:
        os.rename(name, free, src_dir_fd=at, dst_dir_fd=top)
    except PermissionError:  # to move a folder is to write to it
        unlock(name, at)
        os.rename(name, free, src_dir_fd=at, dst_dir_fd=top)
    return free


def _opened(name: str, at: int) -> int:
    unlock(name, at)
    return os.open(name, _OPEN, dir_fd=at)


def unlock(name: str | Path, at: int | None = None) -> None:
    """Make a folder readable and writable for us. It is opened first, so that this cannot fall on what a link leads to."""
    with suppress(PermissionError):  # another's: whether it can be removed is seen when it is tried
        if sys.platform == "linux":
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            try:
                Path(f"/proc/self/fd/{handle}").chmod(0o700)
            finally:
                os.close(handle)
        else:
            os.chmod(name, 0o700, dir_fd=at, follow_symlinks=False)


@contextmanager
def _noted(failures: list[OSError]) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        failures.append(error)


def is_within(path: Path, *, most_bytes: int, most_files: int) -> bool:
    """Whether what is below a folder is within these limits, and no deeper than `DEEPEST`. Counting ends where they do."""
    size = count = 0
    waiting = [(str(path), 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    else:
                        with suppress(FileNotFoundError):
                            size += entry.stat(follow_symlinks=False).st_size
                    if size > most_bytes or count > most_files:
                        return False
        except OSError as error:
            # Others come and go in it, or keep us out; but what is too long to be named is too deep.
            if error.errno == errno.ENAMETOOLONG:
                return False
        if depth > DEEPEST:
            return False
    return True
