"""Files that people bring into a workspace, and those an agent leaves for them. Nothing here follows a link or leaves its folder."""

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

from ambient_runner.errors import InvalidInput, TooLarge, UnknownFile
from ambient_runner.services.workspaces.safe_files import delete_file, inside, is_folder, open_file, settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.workspaces.layout import Folder
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["FileInfo", "Files", "Opened"]

_LONGEST_NAME = 200
_CHUNK = 64 << 10
_DEEPEST = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo:
    """A file of a workspace. `path` is relative to the folder it was asked for in.

    Bytes of a name that are no UTF-8 are shown as `\\xff`: it can be seen, and not fetched before the agent has renamed it.
    """

    path: str
    size: int
    modified: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A file that is open for reading. It is read to the size it had when it was opened, no further."""

    info: FileInfo
    _file: BinaryIO

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """What it holds, piece by piece. Close it (`aclosing`)."""
        left = self.info.size
        while left > 0 and (data := await anyio.to_thread.run_sync(self._file.read, min(_CHUNK, left))):
            left -= len(data)
            yield data


class Files:
    """Uploads and artifacts of all workspaces."""

    def __init__(
        self, workspaces: Workspaces, *, max_bytes: int = 50 << 20, max_files: int = 1000, max_read: int = 500 << 20
    ) -> None:
        self._workspaces = workspaces
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_read = max_read

    async def save(self, thread: ThreadKey, name: str, data: AsyncIterable[bytes]) -> FileInfo:
        """Store an upload under this name, whole or not at all; one of that name is replaced.

        Raises: InvalidInput, TooLarge, ServiceError.
        """
        name = _upload_name(name)
        folder = await self._workspaces.opened(thread)
        async with folder.scratch() as scratch:
            await self._receive(scratch / "upload", data)
            return await folder.locked(lambda: self._keep(folder, scratch / "upload", name))

    async def uploads(self, thread: ThreadKey) -> list[FileInfo]:
        """What was uploaded, by name."""
        folder = await self._workspaces.existing(thread)
        return await anyio.to_thread.run_sync(_walk, folder.uploads, self._max_files, 1) if folder else []

    async def artifacts(self, thread: ThreadKey) -> list[FileInfo]:
        """The files the agent left, by path; of very many only the first."""
        folder = await self._workspaces.existing(thread)
        return await anyio.to_thread.run_sync(_walk, folder.artifacts, self._max_files, _DEEPEST) if folder else []

    async def delete(self, thread: ThreadKey, name: str) -> None:
        """Delete an upload. Raises: UnknownFile, InvalidInput."""
        path = _upload_name(name)
        folder = await self._workspaces.existing(thread)
        if folder is None:
            raise UnknownFile
        await anyio.to_thread.run_sync(delete_file, folder.uploads, path)

    @asynccontextmanager
    async def upload(self, thread: ThreadKey, name: str) -> AsyncGenerator[Opened, None]:
        """An upload, open for reading. Raises: UnknownFile, InvalidInput, TooLarge."""
        folder = await self._workspaces.existing(thread)
        async with self._opened(folder and folder.uploads, PurePosixPath(_upload_name(name))) as opened:
            yield opened

    @asynccontextmanager
    async def artifact(self, thread: ThreadKey, path: str) -> AsyncGenerator[Opened, None]:
        """An artifact, open for reading. Raises: UnknownFile, InvalidInput, TooLarge."""
        folder = await self._workspaces.existing(thread)
        async with self._opened(folder and folder.artifacts, inside(path)) as opened:
            yield opened

    @asynccontextmanager
    async def _opened(self, root: Path | None, path: PurePosixPath) -> AsyncGenerator[Opened, None]:
        if root is None:
            raise UnknownFile
        handle = await anyio.to_thread.run_sync(open_file, root, path)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(handle)
            if about.st_size > self._max_read:
                raise TooLarge(
                    f"The file is larger than {self._max_read >> 20} MiB, the most this server sends. Have the agent write it in parts."
                )
            yield Opened(info=FileInfo(path=str(path), size=about.st_size, modified=about.st_mtime), _file=file)

    async def _receive(self, place: Path, data: AsyncIterable[bytes]) -> None:
        size = 0
        with await anyio.to_thread.run_sync(place.open, "xb") as file:
            async for chunk in data:
                size += len(chunk)
                if size > self._max_bytes:
                    raise TooLarge(
                        f"The file is larger than {self._max_bytes >> 20} MiB, the most this server takes. Send it in parts."
                    )
                await anyio.to_thread.run_sync(file.write, chunk)
            await anyio.to_thread.run_sync(file.flush)
            await anyio.to_thread.run_sync(os.fsync, file.fileno())

    def _keep(self, folder: Folder, place: Path, name: str) -> FileInfo:
        target = folder.uploads / name
        if is_folder(target):
            raise InvalidInput("A folder has that name. Choose another one.")
        if not os.path.lexists(target) and sum(1 for _ in folder.uploads.iterdir()) >= self._max_files:
            raise TooLarge(f"A thread keeps at most {self._max_files} uploads. Delete some first.")
        place.replace(target)
        settle(folder.uploads)
        about = target.lstat()
        return FileInfo(path=name, size=about.st_size, modified=about.st_mtime)


def _upload_name(name: str) -> str:
    """One name, as people write them. Raises: InvalidInput."""
    name = unicodedata.normalize("NFC", name)
    fits = len(name.encode("utf-8", "replace")) <= _LONGEST_NAME and name == name.strip()
    if not name or not fits or not name.isprintable() or name.startswith((".", "-")) or set(name) & set('/\\:*?"<>|'):
        raise InvalidInput(
            "That is not a name for a file. Use up to 200 bytes, no slashes, and no dot or dash at the beginning."
        )
    return name


def _walk(root: Path, most: int, deepest: int) -> list[FileInfo]:
    """The plain files below a folder, in order. Links and their targets are left out; so is a folder that is one."""
    found: list[FileInfo] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for at, folders, names, handle in os.fwalk(root):
            folder = Path(at).relative_to(root)
            folders[:] = sorted(folders) if len(folder.parts) + 1 < deepest else []
            plain = filter(None, (_about(folder, name, handle) for name in sorted(names)))
            found.extend(itertools.islice(plain, most - len(found)))
            if len(found) >= most:
                break
    return found


def _about(folder: Path, name: str, handle: int) -> FileInfo | None:
    """None for what is no plain file, or has gone since it was listed."""
    try:
        about = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    return FileInfo(path=_readable((folder / name).as_posix()), size=about.st_size, modified=about.st_mtime)


def _readable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
