"""A thread's folder on disk: its layout, the lock around its record, and places for work that is not done yet.

Work in progress is in `.ambient/tmp`, each piece in a folder that whoever works on it holds locked. The lock goes with the process, so
what nobody holds is left over from one that died, and is cleaned up.
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
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.workspaces.manifest import Record, read_record, write_record
from ambient_runner.services.workspaces.safe_files import is_folder, make_folder, settle
from ambient_runner.services.workspaces.safe_trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

__all__ = ["CANNOT_WRITE", "Folder"]

CANNOT_WRITE = (
    "The workspace cannot be written. "
    "The server's operator has to check that its folder for workspaces is writable and has room."
)

_LAYOUT = ("repos", "workflows", "artifacts", "file-uploads", ".ambient", ".ambient/tmp", ".ambient/trash")
_LONGEST_NUMBERED = 90
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_SECONDS = 10.0
_LOCK_POLL = 0.01

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where one thread's files are. What is done under `locked` no other process does at the same time."""

    path: Path

    @property
    def own(self) -> Path:
        return self.path / ".ambient"

    @property
    def uploads(self) -> Path:
        return self.path / "file-uploads"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    def repo(self, name: str) -> Path:
        return self.path / "repos" / name

    def workflow(self, name: str) -> Path:
        return self.path / "workflows" / name

    def make(self) -> None:
        """Whatever is missing of the layout. Raises: ServiceError when something else is in its place."""
        for part in _LAYOUT:
            make_folder(self.path / part)

    async def record(self) -> Record:
        """The record as it is now. Raises: ServiceError when it is damaged."""
        return await anyio.to_thread.run_sync(self.read)

    def read(self) -> Record:
        """Raises: ServiceError when the record is damaged."""
        return read_record(self.own)

    def write(self, record: Record) -> None:
        """Replace the record. Only under `locked`, and with nothing in between that could have changed it."""
        write_record(self.own, record)

    def free(self, room: str, name: str) -> str:
        """A name for a new folder in `repos` or `workflows`: this one, or with a number if something has it."""
        names = itertools.chain([name], (f"{name[:_LONGEST_NUMBERED]}-{number}" for number in itertools.count(2)))
        return next(free for free in names if not os.path.lexists(self.path / room / free))

    def move_in(self, tree: Path, place: Path) -> None:
        """Put something finished where it belongs, at once."""
        tree.rename(place)
        settle(place.parent)

    async def locked(self, work: Callable[[], T]) -> T:
        """Do this in a thread while holding the workspace.

        Raises: what the work raises; ServiceError when the workspace stays held by another, or cannot be written.
        """
        try:
            lock = await anyio.to_thread.run_sync(os.open, self.own / "lock", _LOCK, 0o600)
            try:
                await _hold(lock)
                return await anyio.to_thread.run_sync(work)
            finally:
                os.close(lock)
        except OSError as error:
            raise ServiceError(CANNOT_WRITE) from error

    @asynccontextmanager
    async def scratch(self) -> AsyncGenerator[Path, None]:
        """A folder for something that is not done yet. Leaving removes what is still in it."""
        place, held = await self.locked(self._scratch)
        try:
            yield place
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(remove_tree, place)
            finally:
                os.close(held)

    def _scratch(self) -> tuple[Path, int]:
        place = self.own / "tmp" / os.urandom(8).hex()
        place.mkdir(mode=0o700)
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX)
        return place, held

    async def sweep(self) -> Record:
        """Clean up what is left over: unfinished work of dead processes, and folders that nothing names any more.

        Only between runs: an agent may stand in one of them. Raises: ServiceError.
        """
        record = await self.locked(self._set_aside)
        with isolate("deleting what was set aside in a workspace"):
            await anyio.to_thread.run_sync(_empty, self.own / "trash")
        return record

    def _set_aside(self) -> Record:
        record = self.read()
        for place in (self.own / "tmp").iterdir():
            if not _is_held(place):
                self._discard(place)
        for workflow in (self.path / "workflows").iterdir():
            if not record.workflow or workflow.name != record.workflow.folder:
                self._discard(workflow)
        for name in record.stale:
            self._discard(self.repo(name))
        if record.stale:
            record = Record(repos=record.repos, workflow=record.workflow)
            self.write(record)
        return record

    def _discard(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            path.rename(self.own / "trash" / os.urandom(8).hex())


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        remove_tree(path)


def _is_held(place: Path) -> bool:
    """Whether a living process works in this place."""
    if not is_folder(place):
        return False
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return not _take(handle)
    finally:
        os.close(handle)


async def _hold(handle: int) -> None:
    with anyio.move_on_after(_LOCK_SECONDS):
        while not _take(handle):  # noqa: ASYNC110  other processes hold it too, and they set no event of ours
            await anyio.sleep(_LOCK_POLL)
        return
    raise ServiceError("The workspace is being changed by somebody else. Try again in a moment.")


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
