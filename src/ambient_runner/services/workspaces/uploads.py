"""Uploads of users and artifacts of agents in a workspace. Nothing here follows a link or leaves its directory."""

from __future__ import annotations

import itertools
import os
import stat
import unicodedata
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

import anyio.to_thread

from ambient_runner.errors import InvalidInput, PayloadTooLarge, UnknownFile
from ambient_runner.files.safe_files import (
    check_relative_path,
    delete_file,
    fsync_directory,
    is_directory,
    open_file,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.services.workspaces.layout import WorkspaceLayout
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["FileInfo", "OpenFile", "WorkspaceFiles"]

_MAX_NAME_BYTES = 200
_CHUNK_BYTES = 64 << 10
_MAX_DEPTH = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo:
    """A file of a workspace. `path` is relative to the uploads or artifacts directory.

    Bytes of a name that are not UTF-8 are shown as `\\xff`: such a file is listed, but cannot be downloaded until the agent renames it.
    """

    path: str
    size: int
    modified: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFile:
    """A file that is open for reading. It is read only up to its size at opening."""

    info: FileInfo
    _file: BinaryIO

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the content in chunks. Close the generator (`aclosing`)."""
        left = self.info.size
        while left > 0 and (data := await anyio.to_thread.run_sync(self._file.read, min(_CHUNK_BYTES, left))):
            left -= len(data)
            yield data


class WorkspaceFiles:
    """Uploads and artifacts of all workspaces."""

    def __init__(
        self,
        workspaces: Workspaces,
        *,
        max_bytes: int = 50 << 20,
        max_files: int = 1000,
        max_read_bytes: int = 500 << 20,
    ) -> None:
        self._workspaces = workspaces
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_read_bytes = max_read_bytes

    async def save_upload(self, thread: ThreadKey, name: str, data: AsyncIterable[bytes]) -> FileInfo:
        """Store an upload under this name atomically, replacing an earlier one.

        Raises: InvalidInput, PayloadTooLarge, ServiceError.
        """
        name = _upload_name(name)
        layout = await self._workspaces.open_layout(thread)
        async with layout.scratch_directory() as scratch:
            await self._write_upload(scratch / "upload", data)
            return await layout.run_locked(lambda: self._store_upload(layout, scratch / "upload", name))

    async def list_uploads(self, thread: ThreadKey) -> list[FileInfo]:
        """Return the files among the uploads, sorted by name: those of users, and what an agent has put there."""
        layout = await self._workspaces.find_layout(thread)
        return await anyio.to_thread.run_sync(_list_files, layout.uploads, self._max_files, 1) if layout else []

    async def list_user_uploads(self, thread: ThreadKey) -> tuple[str, ...]:
        """Return the names of the uploads that users have sent, sorted. A name that an agent chose is not among them."""
        layout = await self._workspaces.find_layout(thread)
        return await anyio.to_thread.run_sync(_list_user_uploads, layout) if layout else ()

    async def list_artifacts(self, thread: ThreadKey) -> list[FileInfo]:
        """Return the agent's artifacts, sorted by path, up to the configured maximum."""
        layout = await self._workspaces.find_layout(thread)
        return (
            await anyio.to_thread.run_sync(_list_files, layout.artifacts, self._max_files, _MAX_DEPTH) if layout else []
        )

    async def delete_upload(self, thread: ThreadKey, name: str) -> None:
        """Delete an upload. Raises: UnknownFile, InvalidInput."""
        path = _upload_name(name)
        layout = await self._workspaces.find_layout(thread)
        if layout is None:
            raise UnknownFile
        await anyio.to_thread.run_sync(delete_file, layout.uploads, path)
        await anyio.to_thread.run_sync(_remove_upload_name, layout, path)

    @asynccontextmanager
    async def open_upload(self, thread: ThreadKey, name: str) -> AsyncGenerator[OpenFile, None]:
        """Open an upload for reading. Raises: UnknownFile, InvalidInput, PayloadTooLarge."""
        layout = await self._workspaces.find_layout(thread)
        async with self._open_below(layout and layout.uploads, PurePosixPath(_upload_name(name))) as opened:
            yield opened

    @asynccontextmanager
    async def open_artifact(self, thread: ThreadKey, path: str) -> AsyncGenerator[OpenFile, None]:
        """Open an artifact for reading. Raises: UnknownFile, InvalidInput, PayloadTooLarge."""
        layout = await self._workspaces.find_layout(thread)
        async with self._open_below(layout and layout.artifacts, check_relative_path(path)) as opened:
            yield opened

    @asynccontextmanager
    async def _open_below(self, root: Path | None, path: PurePosixPath) -> AsyncGenerator[OpenFile, None]:
        if root is None:
            raise UnknownFile
        handle = await anyio.to_thread.run_sync(open_file, root, path)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if status.st_size > self._max_read_bytes:
                raise PayloadTooLarge(
                    f"The file is larger than {self._max_read_bytes >> 20} MiB, the most this server sends. Let the agent split it."
                )
            yield OpenFile(info=FileInfo(path=str(path), size=status.st_size, modified=status.st_mtime), _file=file)

    async def _write_upload(self, path: Path, data: AsyncIterable[bytes]) -> None:
        size = 0
        with await anyio.to_thread.run_sync(path.open, "xb") as file:
            async for chunk in data:
                size += len(chunk)
                if size > self._max_bytes:
                    raise PayloadTooLarge(
                        f"The file is larger than {self._max_bytes >> 20} MiB, the most this server accepts. Send it in parts."
                    )
                await anyio.to_thread.run_sync(file.write, chunk)
            await anyio.to_thread.run_sync(file.flush)
            await anyio.to_thread.run_sync(os.fsync, file.fileno())

    def _store_upload(self, layout: WorkspaceLayout, source: Path, name: str) -> FileInfo:
        target = layout.uploads / name
        if is_directory(target):
            raise InvalidInput("A directory has that name. Choose another name.")
        if not os.path.lexists(target) and sum(1 for _ in layout.uploads.iterdir()) >= self._max_files:
            raise PayloadTooLarge(f"A thread keeps at most {self._max_files} uploads. Delete some first.")
        # The name first: one without a file is not listed.
        (layout.upload_names / name).touch(mode=0o600)
        source.replace(target)
        fsync_directory(layout.uploads)
        status = target.lstat()
        return FileInfo(path=name, size=status.st_size, modified=status.st_mtime)


def _upload_name(name: str) -> str:
    """Return the normalized file name. Raises: InvalidInput."""
    name = unicodedata.normalize("NFC", name)
    fits = len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES and name == name.strip()
    if not name or not fits or not name.isprintable() or name.startswith((".", "-")) or set(name) & set('/\\:*?"<>|'):
        raise InvalidInput(
            "That is not a valid file name. Use up to 200 bytes, no slashes, and no dot or dash at the start."
        )
    return name


def _list_user_uploads(layout: WorkspaceLayout) -> tuple[str, ...]:
    if not is_directory(layout.upload_names):
        return ()
    names = sorted(path.name for path in layout.upload_names.iterdir())
    return tuple(name for name in names if os.path.lexists(layout.uploads / name))


def _remove_upload_name(layout: WorkspaceLayout, name: str) -> None:
    (layout.upload_names / name).unlink(missing_ok=True)


def _list_files(root: Path, limit: int, max_depth: int) -> list[FileInfo]:
    """Return the regular files below a directory, sorted. Links and their targets are left out, linked directories included."""
    found: list[FileInfo] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for at, directories, names, handle in os.fwalk(root):
            directory = Path(at).relative_to(root)
            directories[:] = sorted(directories) if len(directory.parts) + 1 < max_depth else []
            plain = filter(None, (_file_info(directory, name, handle) for name in sorted(names)))
            found.extend(itertools.islice(plain, limit - len(found)))
            if len(found) >= limit:
                break
    return found


def _file_info(directory: Path, name: str, handle: int) -> FileInfo | None:
    """Return the file's info; None if it is not a regular file or has been deleted since it was listed."""
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileInfo(path=_printable_path((directory / name).as_posix()), size=status.st_size, modified=status.st_mtime)


def _printable_path(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
