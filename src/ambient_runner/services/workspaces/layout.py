"""A thread's directory on disk, which is the agent's, and the directory of the server's own files about it, which is elsewhere.

The second one has the manifest, the lock around it, and scratch directories for unfinished work. Unfinished work is in `tmp`, each piece in
a directory that its worker holds locked. The lock ends with the process, so an unlocked directory was left by a process that died, and is
removed.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ambient_runner.errors import ServiceError
from ambient_runner.files.safe_files import fsync_directory, is_directory, make_directory
from ambient_runner.files.safe_trees import remove_tree
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.workspaces.manifest import WorkspaceManifest, read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

__all__ = ["CANNOT_WRITE", "WorkspaceLayout"]

CANNOT_WRITE = (
    "The workspace cannot be written. "
    "The server's operator has to check that the directory of the workspaces is writable and has free space."
)

_DIRECTORIES = ("repos", "workflows", "artifacts", "file-uploads")
_RECORD_DIRECTORIES = ("tmp", "trash", "uploads")
_MAX_NUMBERED_NAME = 90
"""Characters that remain of a name before its number."""
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_TIMEOUT = 10.0
"""Seconds to wait for the lock of a workspace."""
_LOCK_POLL_INTERVAL = 0.01
"""Seconds between two attempts to get it: another process may hold it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """Paths of one thread's files. Work under `run_locked` excludes all other processes."""

    path: Path
    """The agent's: it can change everything below."""
    record_dir: Path
    """The server's own: manifest, lock, names of uploads, trash and unfinished work."""

    @property
    def uploads(self) -> Path:
        return self.path / "file-uploads"

    @property
    def upload_names(self) -> Path:
        """The directory with an empty file for each upload of a user: an agent can write to `uploads` too."""
        return self.record_dir / "uploads"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    def repo_path(self, name: str) -> Path:
        return self.path / "repos" / name

    def workflow_path(self, name: str) -> Path:
        return self.path / "workflows" / name

    def create_missing(self) -> None:
        """Create the missing directories of the layout. Raises: ServiceError when something else is in the place of one."""
        for part in (*(self.path / name for name in _DIRECTORIES), self.record_dir):
            make_directory(part)
        self.create_record_dirs(self.record_dir)

    def create_record_dirs(self, directory: Path) -> None:
        """Create what is missing in the server's own directory, or in one that becomes it. Raises: ServiceError."""
        for name in _RECORD_DIRECTORIES:
            make_directory(directory / name)

    async def load_manifest(self) -> WorkspaceManifest:
        """Read the current manifest in a thread. Raises: ServiceError when it is damaged."""
        return await anyio.to_thread.run_sync(self.read_manifest)

    def read_manifest(self) -> WorkspaceManifest:
        """Read the current manifest. Blocks. Raises: ServiceError when it is damaged."""
        return read_manifest(self.record_dir)

    def write_manifest(self, manifest: WorkspaceManifest) -> None:
        """Replace the manifest. Call it only under `run_locked`, together with the read it is based on."""
        write_manifest(self.record_dir, manifest)

    def free_name(self, parent: str, name: str) -> str:
        """Return a free name for a new directory in one of the agent's: this one, or with a number if it is taken."""
        names = itertools.chain([name], (f"{name[:_MAX_NUMBERED_NAME]}-{number}" for number in itertools.count(2)))
        return next(free for free in names if not os.path.lexists(self.path / parent / free))

    def move_into_place(self, tree: Path, target: Path) -> None:
        """Move finished work to its final path atomically."""
        tree.rename(target)
        fsync_directory(target.parent)

    async def run_locked(self, work: Callable[[], T]) -> T:
        """Run the work in a thread while holding the workspace's lock.

        Raises: what the work raises; ServiceError when the lock stays taken, or the workspace cannot be written.
        """
        try:
            lock = await anyio.to_thread.run_sync(os.open, self.record_dir / "lock", _LOCK_FLAGS, 0o600)
            try:
                await _acquire_lock(lock)
                return await anyio.to_thread.run_sync(work)
            finally:
                os.close(lock)
        except OSError as error:
            raise ServiceError(CANNOT_WRITE) from error

    @asynccontextmanager
    async def scratch_directory(self) -> AsyncGenerator[Path, None]:
        """Create a directory for unfinished work. Leaving removes what is still in it."""
        directory, lock = await self.run_locked(self._make_scratch)
        try:
            yield directory
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(remove_tree, directory)
            finally:
                os.close(lock)

    def _make_scratch(self) -> tuple[Path, int]:
        directory = self.record_dir / "tmp" / os.urandom(8).hex()
        directory.mkdir(mode=0o700)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return directory, lock

    async def remove_leftovers(self) -> WorkspaceManifest:
        """Remove unfinished work of dead processes, and directories that the manifest no longer names. Return the manifest.

        Call it only between runs: an agent may be working in one of them. Raises: ServiceError.
        """
        manifest = await self.run_locked(self._trash_leftovers)
        with isolate(f"emptying the trash of the workspace {self.path}"):
            await anyio.to_thread.run_sync(_empty_directory, self.record_dir / "trash")
        return manifest

    def _trash_leftovers(self) -> WorkspaceManifest:
        manifest = self.read_manifest()
        for directory in (self.record_dir / "tmp").iterdir():
            if not _is_locked(directory):
                self._move_to_trash(directory)
        for workflow in (self.path / "workflows").iterdir():
            if not manifest.workflow or workflow.name != manifest.workflow.directory:
                self._move_to_trash(workflow)
        for name in manifest.stale:
            self._move_to_trash(self.repo_path(name))
        if manifest.stale:
            manifest = WorkspaceManifest(repos=manifest.repos, workflow=manifest.workflow)
            self.write_manifest(manifest)
        return manifest

    def _move_to_trash(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            path.rename(self.record_dir / "trash" / os.urandom(8).hex())


def _empty_directory(directory: Path) -> None:
    for path in directory.iterdir():
        remove_tree(path)


def _is_locked(directory: Path) -> bool:
    """Return True if a live process holds the directory's lock."""
    if not is_directory(directory):
        return False
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return not _try_lock(handle)
    finally:
        os.close(handle)


async def _acquire_lock(handle: int) -> None:
    with anyio.move_on_after(_LOCK_TIMEOUT):
        while not _try_lock(handle):  # noqa: ASYNC110  the lock may be held by another process, which cannot set an event here
            await anyio.sleep(_LOCK_POLL_INTERVAL)
        return
    raise ServiceError("Another request is changing the workspace. Try again in a moment.")


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
