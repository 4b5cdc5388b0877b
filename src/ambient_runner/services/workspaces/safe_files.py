"""Files inside a folder that an agent can change: reached without ever leaving it. Whole trees are for `trees.py`.

A link is never followed. A path is walked part by part on open folders, so nothing can be swapped between the look and the step.
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
    "delete_file",
    "inside",
    "is_folder",
    "make_folder",
    "open_file",
    "read_file",
    "settle",
    "write_file",
]

_LONGEST_PATH = 1000
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Not blocking, or opening a pipe would wait for its other end.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_SUCH_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_NOT_THERE = (*_NO_SUCH_PLACE, errno.ENXIO, errno.EACCES)


def inside(path: str) -> PurePosixPath:
    """A relative path that stays where it begins, by its text.

    Raises: InvalidInput.
    """
    parts = path.split("/")
    if len(path) > _LONGEST_PATH or "\\" in path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput("A path is relative, with single slashes between its parts and no `.` or `..` among them.")
    return PurePosixPath(path)


def is_folder(path: Path) -> bool:
    """Whether a folder is there: itself, not a link to one. Raises: OSError when that cannot be seen."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError as error:
        if error.errno in _NO_SUCH_PLACE:
            return False
        raise


def make_folder(path: Path) -> None:
    """A folder of our own, made if it is missing.

    Raises: ServiceError when something else is in its place.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not is_folder(path):
        raise ServiceError(
            f"The workspace has something in the place of its folder `{path.name}`. Remove it, or delete the thread."
        )


def open_file(root: Path, path: PurePosixPath) -> int:
    """A plain file below `root`, opened for reading. The caller closes it.

    Raises: UnknownFile, also for links, folders, pipes and devices.
    """
    try:
        file = _open_below(root, path)
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise UnknownFile from error
        raise
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise UnknownFile


def _open_below(root: Path, path: PurePosixPath) -> int:
    at = os.open(root, _OPEN_FOLDER)
    try:
        for part in path.parts[:-1]:
            inner = os.open(part, _OPEN_FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(path.parts[-1], _OPEN_FILE, dir_fd=at)
    finally:
        os.close(at)


def read_file(root: Path, path: PurePosixPath, limit: int) -> bytes | None:
    """What a plain file below `root` holds; None when there is none.

    Raises: ValueError, whose text says what is there instead: no plain file, or more than `limit` bytes.
    """
    try:
        file = open_file(root, path)
    except UnknownFile as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise ValueError("is not a plain file that can be read") from error
    with os.fdopen(file, "rb") as opened:
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"is larger than {limit} bytes")
    return data


def delete_file(folder: Path, name: str) -> None:
    """Take a file out of this very folder. A link goes, what it leads to stays.

    Raises: UnknownFile when there is none, or a folder in its place.
    """
    try:
        at = os.open(folder, _OPEN_FOLDER)
        try:
            os.unlink(name, dir_fd=at)
        finally:
            os.close(at)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UnknownFile from error


def write_file(path: Path, data: bytes) -> None:
    """All of it or nothing, also when the machine stops in the middle."""
    beside = path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    settle(path.parent)


def settle(folder: Path) -> None:
    """Make the names in a folder as lasting as the files they name."""
    handle = os.open(folder, _OPEN_FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
