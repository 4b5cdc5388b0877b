"""Workspaces: one folder per thread of one owner, and the snapshot of it that a run works with."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar, get_args

import anyio.to_thread

from ambient_runner.config.private_dir import make_private
from ambient_runner.errors import ConfigError, ServiceError
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.background_jobs import Jobs
from ambient_runner.services.workspaces.clone import Cloner, Limits
from ambient_runner.services.workspaces.clone_sources import Scheme, SourceRules
from ambient_runner.services.workspaces.git import Git
from ambient_runner.services.workspaces.layout import CANNOT_WRITE, Folder
from ambient_runner.services.workspaces.safe_files import is_folder, make_folder
from ambient_runner.services.workspaces.safe_names import folder_name, thread_branch
from ambient_runner.services.workspaces.safe_trees import remove_tree, unlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.workspaces.manifest import Record, WorkflowConfig, WorkflowEntry

__all__ = ["Repo", "Workflow", "Workspace", "Workspaces"]

_TRASH = ".trash"
_NOT_ERASED = (
    "Some files of this thread could not be deleted. The server tries again when it starts; "
    "its operator finds in the log what is in the way."
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Repo:
    """A repository that is there to be worked in."""

    name: str
    url: str
    path: Path
    branch: str
    """The thread's own branch, which is checked out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow:
    """The workflow the agent works in."""

    url: str
    branch: str
    """The branch that was asked for; empty for the default one."""
    path: str
    """The folder inside the source; empty for all of it."""
    folder: Path
    """Where it is."""
    config: WorkflowConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A thread's workspace as it was when a run began. All paths are absolute and exist; later changes are for the next run."""

    path: Path
    cwd_path: Path
    """Where the agent begins: in the workflow, else in the main repository, else among the artifacts."""
    add_dirs: tuple[Path, ...]
    """The other folders it may work in."""
    repos: tuple[Repo, ...] = ()
    workflow: Workflow | None = None
    artifacts: Path
    uploads: Path


class Workspaces:
    """All workspaces of a server, below one folder. Leaving the `async with` ends what is under way in them.

    `rules` say where clones come from, which is never one of these workspaces. `base` is what git may have of the server's own variables:
    PATH, proxies, certificates. Raises: ConfigError for a scheme nobody knows.
    """

    def __init__(
        self,
        root: Path,
        *,
        rules: SourceRules | None = None,
        limits: Limits | None = None,
        base: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.rules = replace(rules or SourceRules(), never=root)
        _check_schemes(self.rules.schemes)
        self.git = Git(base=base or {})
        self.cloner = Cloner(self.git, limits or Limits())
        self.jobs = Jobs()
        """What is under way in workspaces. It goes on when those who asked for it have left."""
        self._on_forget: list[Callable[[ThreadKey], None]] = []
        self._is_swept = False

    async def __aenter__(self) -> Self:
        await self.jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.jobs.__aexit__(kind, error, trace)

    async def prepare(self, thread: ThreadKey) -> Workspace:
        """The workspace a run begins with: made if it is missing, checked, and cleaned of what nothing names any more.

        Call it between runs, as the set-up of one. Raises: ServiceError.
        """
        if not self._is_swept:
            self._is_swept = True
            with isolate("deleting what is left of erased workspaces"):
                await anyio.to_thread.run_sync(self._empty_trash)
        folder = await self.opened(thread)
        record = await folder.sweep()
        return await anyio.to_thread.run_sync(_snapshot, folder, record, thread_branch(thread.id))

    async def snapshot(self, thread: ThreadKey) -> Workspace | None:
        """The workspace as it is now, if there is one. Nothing is made or cleaned, so a run may be going on in it. Raises: ServiceError."""
        folder = await self.existing(thread)
        if folder is None:
            return None
        return await anyio.to_thread.run_sync(_snapshot, folder, await folder.record(), thread_branch(thread.id))

    async def opened(self, thread: ThreadKey) -> Folder:
        """The thread's folder, made if it is missing. Raises: ServiceError."""
        return await anyio.to_thread.run_sync(self._make, thread)

    async def existing(self, thread: ThreadKey) -> Folder | None:
        """The thread's folder, if it has one. Nothing in it is made or checked."""
        folder = self._folder(thread)
        return folder if await anyio.to_thread.run_sync(is_folder, folder.path) else None

    async def change(self, thread: ThreadKey, work: Callable[[Folder], T]) -> T | None:
        """What this gives, done while holding the thread's folder; None when it has none. Raises: what the work raises; ServiceError."""
        if await self.existing(thread) is None:
            return None
        folder = await self.opened(thread)
        return await folder.locked(lambda: work(folder))

    async def holds(self, thread: ThreadKey) -> bool:
        """Whether there is anything to erase, be it no folder but something in its place."""
        return await anyio.to_thread.run_sync(self._place, self._path(thread)) is not None

    def on_forget(self, call: Callable[[ThreadKey], None]) -> None:
        """Have this called when a workspace is erased."""
        self._on_forget.append(call)

    async def forget(self, thread: ThreadKey) -> None:
        """Erase the workspace with all that is in it, and end what is under way in it. A link in its place goes, what it leads to stays.

        Raises: ServiceError when something could not be deleted.
        """
        await self.jobs.cancel(*self.jobs.under_way(thread))
        for call in self._on_forget:
            call(thread)
        await anyio.to_thread.run_sync(self._erase, self._path(thread))

    def _path(self, thread: ThreadKey) -> Path:
        return self.root.absolute().joinpath(*map(folder_name, thread))

    def _folder(self, thread: ThreadKey) -> Folder:
        return Folder(self.root.resolve() / self._path(thread).relative_to(self.root.absolute()))

    def _make(self, thread: ThreadKey) -> Folder:
        path = self._path(thread)
        try:
            make_private(self.root)
            for place in (path.parent.parent, path.parent, path):
                make_folder(place)
            folder = self._folder(thread)
            folder.make()
        except OSError as error:
            raise ServiceError(CANNOT_WRITE) from error
        return folder

    def _place(self, path: Path) -> Path | None:
        """What there is of a thread's folder: itself, or what an agent has put in its place or on the way to it."""
        for place in (path.parent.parent, path.parent, path):
            if not is_folder(place):
                return place if os.path.lexists(place) else None
        return path

    def _erase(self, path: Path) -> None:
        """Out of its place at once, so that nothing finds it; then gone."""
        place = self._place(path)
        if place is None:
            return
        aside = self.root / _TRASH / os.urandom(8).hex()
        try:
            self._make_trash()
            for folder in (place.parent, place):
                if is_folder(folder):
                    unlock(folder)
            place.rename(aside)
        except OSError as error:
            raise ServiceError(_NOT_ERASED) from error
        if not remove_tree(aside):
            raise ServiceError(_NOT_ERASED)

    def _make_trash(self) -> None:
        trash = self.root / _TRASH
        if not is_folder(trash):
            trash.unlink(missing_ok=True)
        trash.mkdir(mode=0o700, exist_ok=True)

    def _empty_trash(self) -> None:
        trash = self.root / _TRASH
        if is_folder(trash):
            for path in trash.iterdir():
                remove_tree(path)


def _check_schemes(schemes: tuple[str, ...]) -> None:
    known = get_args(Scheme)
    wrong = [scheme for scheme in schemes if scheme not in known]
    if wrong:
        raise ConfigError(
            f"`git.schemes` has {wrong[0]!r}, which git clones are not made by. Choose among {', '.join(known)}."
        )


def _snapshot(folder: Folder, record: Record, branch: str) -> Workspace:
    repos = tuple(
        Repo(name=repo.name, url=repo.url, path=folder.repo(repo.folder), branch=branch)
        for repo in record.repos
        if is_folder(folder.repo(repo.folder))
    )
    workflow = _workflow(folder, record.workflow) if record.workflow else None
    places = [*(repo.path for repo in repos), folder.artifacts, folder.uploads]
    cwd = workflow.folder if workflow else places[0]
    return Workspace(
        path=folder.path,
        cwd_path=cwd,
        add_dirs=tuple(place for place in places if place != cwd),
        repos=repos,
        workflow=workflow,
        artifacts=folder.artifacts,
        uploads=folder.uploads,
    )


def _workflow(folder: Folder, entry: WorkflowEntry) -> Workflow:
    path = folder.workflow(entry.folder) / entry.path
    # A link on the way would lead the agent's working directory out of the workspace.
    if not is_folder(path) or path.resolve() != path:
        raise ServiceError("The folder of the active workflow is gone. Choose the workflow again.")
    return Workflow(url=entry.url, branch=entry.branch, path=entry.path, folder=path, config=entry.config)
