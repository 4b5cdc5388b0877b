"""The active workflow of a workspace. A new one is fetched beside the old one and checked; only then does the record switch."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import anyio.to_thread
import msgspec

from ambient_runner.errors import InvalidInput, RepoConflict, ServiceError
from ambient_runner.services.clone import Order
from ambient_runner.services.jobs import JobKey, Jobs
from ambient_runner.services.names import check_branch, name_of, session_branch
from ambient_runner.services.paths import disk_use, inside, is_folder
from ambient_runner.services.sources import without_git
from ambient_runner.services.state import WorkflowConfig, WorkflowEntry
from ambient_runner.services.workflow_config import read_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.folder import Folder
    from ambient_runner.services.progress import CloneProgress, OnProgress
    from ambient_runner.services.workspace import Workspaces

__all__ = ["Changed", "Workflows"]

_JOB = "workflow"
_MOST_BYTES, _MOST_FILES = 100 << 20, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """The workflow the next run works in."""

    outcome: Literal["updated", "already active"]
    url: str
    branch: str
    path: str
    config: WorkflowConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    url: str
    branch: str
    path: str

    def is_entry(self, entry: WorkflowEntry) -> bool:
        return self == _Asked(url=without_git(entry.url), branch=entry.branch, path=entry.path)


class Workflows:
    """The workflows of all workspaces. A change belongs to it, not to who asked: leaving the `async with` ends those under way."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._jobs = Jobs()
        workspaces.on_forget(self._forget)

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._jobs.__aexit__(kind, error, trace)

    async def change(
        self,
        thread: ThreadKey,
        url: str,
        *,
        branch: str | None = None,
        path: str | None = None,
        environment: Mapping[str, str],
        progress: OnProgress | None = None,
    ) -> Changed:
        """Make this the workflow of the thread, from its next run on. `url` may be a local folder where the server allows those.

        `path` is the folder inside that is the workflow. `environment` is what was granted to the actor, as for a repository.
        Raises: InvalidInput, Forbidden, RepoConflict while another change is under way, ServiceError. Then the old one stays.
        """
        source = await self._workspaces.rules.checked(url)
        branch = check_branch(branch) if branch else ""
        path = str(inside(path.strip("/"))) if path and path.strip("/") else ""
        asked = _Asked(url=without_git(source.url), branch=branch, path=path)
        folder = await self._workspaces.opened(thread)
        active = await folder.locked(lambda: _active(folder, asked))
        if active:
            return _changed(active, "already active")
        job = self._jobs.find(JobKey(thread, _JOB))
        if job and job.about != asked:
            raise RepoConflict(
                "Another workflow is being fetched for this thread. Wait until it is there, then choose again."
            )
        order = Order(
            name=_name(source.url),
            source=source,
            branch=branch or None,
            session=session_branch(thread.id),
            granted=environment,
        )
        return await self._jobs.join(
            JobKey(thread, _JOB), asked, lambda: self._fetch(folder, order, asked, progress or _silent)
        )

    async def clear(self, thread: ThreadKey) -> bool:
        """Have no workflow from the next run on; False when there was none. Raises: ServiceError."""
        folder = await self._workspaces.existing(thread)
        return bool(folder) and await folder.locked(lambda: _switch(folder, None))

    async def _fetch(self, folder: Folder, order: Order, asked: _Asked, progress: OnProgress) -> Changed:
        async with folder.scratch() as scratch:
            tree = scratch / "tree"
            local = order.source.folder
            if local and not await anyio.to_thread.run_sync(_is_repository, local):
                await anyio.to_thread.run_sync(_copy, local, tree)
            else:
                await self._workspaces.cloner.clone(order, tree, progress)
            entry = await folder.locked(lambda: _keep(folder, order, asked, tree))
        return _changed(entry, "updated")

    async def _forget(self, thread: ThreadKey) -> None:
        await self._jobs.cancel(*self._jobs.under_way(thread))


def _name(url: str) -> str:
    with suppress(InvalidInput):
        return name_of(url)
    return "workflow"


async def _silent(step: CloneProgress) -> None: ...


def _changed(entry: WorkflowEntry, outcome: Literal["updated", "already active"]) -> Changed:
    return Changed(outcome=outcome, url=entry.url, branch=entry.branch, path=entry.path, config=entry.config)


def _active(folder: Folder, asked: _Asked) -> WorkflowEntry | None:
    """The active workflow, if it is this one and still whole."""
    entry = folder.read().workflow
    return entry if entry and asked.is_entry(entry) and is_folder(folder.workflow(entry.folder) / entry.path) else None


def _keep(folder: Folder, order: Order, asked: _Asked, tree: Path) -> WorkflowEntry:
    config = read_config(_root(tree, asked.path))
    entry = WorkflowEntry(
        folder=folder.free("workflows", order.name),
        url=order.source.url,
        branch=asked.branch,
        path=asked.path,
        config=config,
    )
    # The folder first: no run may find a workflow that is not there. A folder that nothing names goes before the next run.
    folder.move_in(tree, folder.workflow(entry.folder))
    _switch(folder, entry)
    return entry


def _root(tree: Path, path: str) -> Path:
    root = tree / path
    if is_folder(root) and root.resolve() == tree.resolve() / path:
        return root
    raise InvalidInput("The workflow's repository has no folder of that path.")


def _switch(folder: Folder, entry: WorkflowEntry | None) -> bool:
    record = folder.read()
    folder.write(msgspec.structs.replace(record, workflow=entry))
    return record.workflow is not None


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())


def _copy(folder: Path, into: Path) -> None:
    """A plain folder as a workflow: a copy, so that the agent's work does not change the original. Links stay links."""
    if not is_folder(folder):
        raise InvalidInput("There is no such folder.")
    if not disk_use(folder, most_bytes=_MOST_BYTES, most_files=_MOST_FILES):
        raise ServiceError(f"The folder is larger than {_MOST_BYTES >> 20} MiB or has more than {_MOST_FILES} files.")
    try:
        shutil.copytree(folder, into, symlinks=True, ignore=_not_plain)
    except (shutil.Error, OSError) as error:
        raise ServiceError(
            "The folder could not be copied. The server's operator has to check that it is readable."
        ) from error


def _not_plain(folder: str, names: list[str]) -> list[str]:
    """What a copy would wait for or never end with: pipes, sockets and devices."""
    found = [(name, Path(folder, name)) for name in names]
    return [name for name, path in found if not (path.is_symlink() or path.is_file() or path.is_dir())]
