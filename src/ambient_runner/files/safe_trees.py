"""Removal and measurement of untrusted directory trees of any depth.

Nothing here recurses, and no path is built that could become too long: removal works level by level, relative to open directories. Links
are never followed. All functions here block: call them in a thread.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ambient_runner.files.safe_files import is_directory

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["MAX_DEPTH", "is_tree_within", "make_writable", "remove_tree"]

logger = logging.getLogger(__name__)

MAX_DEPTH = 200
"""Maximum depth of a measured tree. Tools that recurse can handle this."""

_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_ATTEMPTS = 3


def remove_tree(path: Path) -> bool:
    """Remove a tree, read-only directories included. Return True if nothing is left; a failure does not keep the rest."""
    failures: list[OSError] = []
    for _ in range(_MAX_ATTEMPTS):
        failures = _remove_once(path)
        if not failures:
            return True
    logger.warning(
        "%s could not be removed completely; check its permissions and delete the rest", path, exc_info=failures[0]
    )
    return False


def _remove_once(path: Path) -> list[OSError]:
    """Try once to remove the tree and return the errors. Files that another process removes meanwhile are no error."""
    failures: list[OSError] = []
    with _collect_errors(failures):
        if not is_directory(path):
            path.unlink()
            return failures
        make_writable(path)
        top = os.open(path, _OPEN_FLAGS)
        try:
            _empty_tree(top, failures)
        finally:
            os.close(top)
        path.rmdir()
    return failures


def _empty_tree(top: int, failures: list[OSError]) -> None:
    """Empty a directory. Subdirectories move to the top before their parent is removed: two are open at a time, and paths stay short."""
    waiting = _remove_files(top, failures)
    while waiting:
        name = waiting.pop()
        with _collect_errors(failures):
            at = _open_directory(name, top)
            try:
                for inner in _remove_files(at, failures):
                    with _collect_errors(failures):
                        waiting.append(_move_to_top(inner, at, top))
            finally:
                os.close(at)
            os.rmdir(name, dir_fd=top)


def _remove_files(at: int, failures: list[OSError]) -> list[str]:
    """Remove everything but directories from a directory, and return the names of its directories."""
    with os.scandir(at) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name in (name for name, directory in names if not directory):
        with _collect_errors(failures):
            os.unlink(name, dir_fd=at)
    return [name for name, directory in names if directory]


def _move_to_top(name: str, at: int, top: int) -> str:
    """Move a directory to the top and return its new name."""
    new_name = os.urandom(12).hex()
    try:
        os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=top)
    except PermissionError:  # moving a directory writes to it
        make_writable(name, at)
        os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=top)
    return new_name


def _open_directory(name: str, at: int) -> int:
    make_writable(name, at)
    return os.open(name, _OPEN_FLAGS, dir_fd=at)


def make_writable(name: str | Path, at: int | None = None) -> None:
    """Make a directory readable and writable for this process. It is opened first, so that a link's target is never changed."""
    with suppress(PermissionError):  # owned by another user: the attempt to remove it will tell
        if sys.platform == "linux":
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            try:
                Path(f"/proc/self/fd/{handle}").chmod(0o700)
            finally:
                os.close(handle)
        else:
            os.chmod(name, 0o700, dir_fd=at, follow_symlinks=False)


@contextmanager
def _collect_errors(failures: list[OSError]) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        failures.append(error)


def is_tree_within(path: Path, *, max_bytes: int, max_files: int) -> bool:
    """Return True if a tree is within these limits and no deeper than `MAX_DEPTH`. Stop counting at the first limit."""
    size = count = 0
    waiting = [(str(path), 0)]
    while waiting:
        directory, depth = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    else:
                        with suppress(FileNotFoundError):
                            size += entry.stat(follow_symlinks=False).st_size
                    if size > max_bytes or count > max_files:
                        return False
        except OSError as error:
            # Directories may vanish or be unreadable, which is fine; but a path that is too long is too deep.
            if error.errno == errno.ENAMETOOLONG:
                return False
        if depth > MAX_DEPTH:
            return False
    return True
