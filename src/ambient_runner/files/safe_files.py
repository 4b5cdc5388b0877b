"""Access to files in a directory that an agent can change, without ever leaving it. `safe_trees.py` handles whole trees.

Links are never followed. A path is opened part by part, relative to open directories, so that nothing can be swapped between check and use.
All functions here block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ambient_runner.errors import InvalidInput, ServiceError, UnknownFile

__all__ = [
    "check_relative_path",
    "delete_file",
    "fsync_directory",
    "is_directory",
    "make_directory",
    "move_entry",
    "open_file",
    "read_file",
    "write_file",
]

_MAX_PATH = 1000
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: opening a pipe would wait for its other end.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_UNAVAILABLE_ERRNOS = (*_MISSING_ERRNOS, errno.ENXIO, errno.EACCES)


def check_relative_path(path: str) -> PurePosixPath:
    """Return the path if its text is relative and stays below its start.

    Raises: InvalidInput.
    """
    parts = path.split("/")
    if len(path) > _MAX_PATH or "\\" in path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput("A path is relative, with single slashes between its parts and no `.` or `..` among them.")
    return PurePosixPath(path)


def is_directory(path: Path) -> bool:
    """Return True if the path is a directory, not a link to one. Raises: OSError when it cannot be read."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError as error:
        if error.errno in _MISSING_ERRNOS:
            return False
        raise


def make_directory(path: Path) -> None:
    """Create a private directory if it is missing.

    Raises: ServiceError when something else is in its place.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not is_directory(path):
        raise ServiceError(
            f"The workspace has something in the place of its directory `{path.name}`. Remove it, or delete the thread."
        )


def open_file(root: Path, path: PurePosixPath) -> int:
    """Open a regular file below `root` for reading. The caller closes the descriptor.

    Raises: UnknownFile, also for links, directories, pipes and devices.
    """
    try:
        file = _open_below(root, path)
    except OSError as error:
        if error.errno in _UNAVAILABLE_ERRNOS:
            raise UnknownFile from error
        raise
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise UnknownFile


def _open_below(root: Path, path: PurePosixPath) -> int:
    at = os.open(root, _OPEN_DIRECTORY)
    try:
        for part in path.parts[:-1]:
            inner = os.open(part, _OPEN_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(path.parts[-1], _OPEN_FILE, dir_fd=at)
    finally:
        os.close(at)


def read_file(root: Path, path: PurePosixPath, limit: int) -> bytes | None:
    """Read a regular file below `root`; None if there is none.

    Raises: ValueError, whose text says why: not a regular file, or more than `limit` bytes.
    """
    try:
        file = open_file(root, path)
    except UnknownFile as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise ValueError("is not a readable regular file") from error
    with os.fdopen(file, "rb") as opened:
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"is larger than {limit} bytes")
    return data


def delete_file(directory: Path, name: str) -> None:
    """Delete a file directly in this directory. Of a link, only the link is deleted.

    Raises: UnknownFile when there is none, or a directory in its place.
    """
    try:
        at = os.open(directory, _OPEN_DIRECTORY)
        try:
            os.unlink(name, dir_fd=at)
        finally:
            os.close(at)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UnknownFile from error


def move_entry(source: Path, name: str, target: Path, new_name: str) -> None:
    """Move what has this name in a directory to another directory of the file system. Raises: OSError, also if one of the two is a link."""
    source_handle = os.open(source, _OPEN_DIRECTORY)
    try:
        target_handle = os.open(target, _OPEN_DIRECTORY)
        try:
            os.rename(name, new_name, src_dir_fd=source_handle, dst_dir_fd=target_handle)
        finally:
            os.close(target_handle)
    finally:
        os.close(source_handle)


def write_file(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: after a crash it has the old or the new content."""
    temporary = path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Make changes to the names in a directory durable."""
    handle = os.open(directory, _OPEN_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
