"""Workspaces: one directory per thread of an owner, and the snapshot of it that a run works with."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar, get_args

import anyio.to_thread

from ambient_runner.config.private_dir import make_private_dir
from ambient_runner.errors import ConfigError, ServiceError
from ambient_runner.files.safe_files import is_directory, make_directory
from ambient_runner.files.safe_trees import make_writable, remove_tree
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.background_jobs import BackgroundJobs
from ambient_runner.services.workspaces.clone import CloneLimits, Cloner
from ambient_runner.services.workspaces.clone_sources import Scheme, SourceRules
from ambient_runner.services.workspaces.git import Git
from ambient_runner.services.workspaces.layout import CANNOT_WRITE, WorkspaceLayout
from ambient_runner.services.workspaces.layout_migration import create_record
from ambient_runner.services.workspaces.safe_names import directory_name, thread_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.services.workspaces.manifest import WorkflowConfig, WorkflowEntry, WorkspaceManifest

__all__ = ["Repo", "Workflow", "Workspace", "Workspaces"]

_TRASH = ".trash"
_RECORDS = ".records"
"""The server's own files about workspaces, in the same order as these. No agent's directory is above it, below it or has its name."""
_NOT_ERASED = (
    "Some files of this thread could not be deleted. The server tries again when it starts; "
    "its operator finds the reason in the log."
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Repo:
    """A repository of a workspace."""

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
    """The requested branch; empty for the default one."""
    path: str
    """The workflow's directory inside the source; empty for the whole source."""
    directory: Path
    """Its absolute path."""
    config: WorkflowConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A thread's workspace at the start of a run. All paths are absolute and exist; later changes take effect with the next run."""

    path: Path
    cwd_path: Path
    """The agent's working directory: the workflow, else the main repository, else the artifacts."""
    add_dirs: tuple[Path, ...]
    """The other directories it may work in."""
    repos: tuple[Repo, ...] = ()
    workflow: Workflow | None = None
    artifacts: Path
    uploads: Path


class Workspaces:
    """All workspaces of a server, below one directory. Leaving the `async with` cancels their background jobs.

    `rules` restrict the sources of clones, which are never one of these workspaces. `git_environment` holds the server's own variables that
    git gets: PATH, proxies, certificates. Raises: ConfigError for an unknown scheme.
    """

    def __init__(
        self,
        root: Path,
        *,
        rules: SourceRules | None = None,
        limits: CloneLimits | None = None,
        git_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.rules = replace(rules or SourceRules(), excluded_root=root)
        _check_schemes(self.rules.schemes)
        self.git = Git(base_environment=git_environment or {})
        self.cloner = Cloner(self.git, limits or CloneLimits())
        self.jobs = BackgroundJobs()
        """Background jobs in workspaces. They continue when the client disconnects."""
        self._erase_callbacks: list[Callable[[ThreadKey], None]] = []
        self._is_trash_emptied = False

    async def __aenter__(self) -> Self:
        """Create the root if it is missing. Raises: ConfigError if that is not possible, or nothing can be written to it."""
        await anyio.to_thread.run_sync(self._check_root)
        await self.jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.jobs.__aexit__(kind, error, trace)

    async def prepare(self, thread: ThreadKey) -> Workspace:
        """Return the workspace for a new run: created if missing, checked, and without leftovers.

        Call it only between runs, as part of set-up. Raises: ServiceError.
        """
        if not self._is_trash_emptied:
            self._is_trash_emptied = True
            with isolate(f"deleting the rest of erased workspaces in {self.root / _TRASH}"):
                await anyio.to_thread.run_sync(self._empty_trash)
        layout = await self.open_layout(thread)
        manifest = await layout.remove_leftovers()
        return await anyio.to_thread.run_sync(_take_snapshot, layout, manifest, thread_branch(thread.id))

    async def snapshot(self, thread: ThreadKey) -> Workspace | None:
        """Return the current workspace, if there is one. Nothing is created or removed, so a run may be using it. Raises: ServiceError."""
        layout = await self.find_layout(thread)
        if layout is None:
            return None
        return await anyio.to_thread.run_sync(
            _take_snapshot, layout, await layout.load_manifest(), thread_branch(thread.id)
        )

    async def open_layout(self, thread: ThreadKey) -> WorkspaceLayout:
        """Return the thread's directory, created if missing. Raises: ServiceError."""
        return await anyio.to_thread.run_sync(self._make_layout, thread)

    async def find_layout(self, thread: ThreadKey) -> WorkspaceLayout | None:
        """Return the thread's directory, if it has one. Nothing in it is created or checked, but for the manifest of an earlier version.

        Raises: ServiceError.
        """
        layout = self._layout_of(thread)
        if not await anyio.to_thread.run_sync(is_directory, layout.path):
            return None
        await anyio.to_thread.run_sync(self._make_record, layout, thread)
        return layout

    async def change_locked(self, thread: ThreadKey, work: Callable[[WorkspaceLayout], T]) -> T | None:
        """Run the work with the lock on the thread's directory; None if it has none. Raises: what the work raises; ServiceError."""
        if await self.find_layout(thread) is None:
            return None
        layout = await self.open_layout(thread)
        return await layout.run_locked(lambda: work(layout))

    async def has_files(self, thread: ThreadKey) -> bool:
        """Return True if there is anything to erase: a directory of the thread, or another file in its place."""
        found = [await anyio.to_thread.run_sync(self._existing_path, path) for path in self._paths_of(thread)]
        return any(path is not None for path in found)

    def on_erase(self, callback: Callable[[ThreadKey], None]) -> None:
        """Register a callback for erased workspaces."""
        self._erase_callbacks.append(callback)

    async def erase_thread(self, thread: ThreadKey) -> None:
        """Erase the workspace with all its files and cancel its jobs. Of a link in its place, only the link is deleted.

        Raises: ServiceError when something could not be deleted.
        """
        await self.jobs.cancel_and_wait(*self.jobs.for_thread(thread))
        for callback in self._erase_callbacks:
            callback(thread)
        # The record last: it must not be missing while there is a directory in which an agent may have written a manifest.
        for path in self._paths_of(thread):
            await anyio.to_thread.run_sync(self._erase_tree, path)

    def _paths_of(self, thread: ThreadKey) -> tuple[Path, Path]:
        """Return the thread's directory, which is the agent's, and that of the server's own files about it."""
        root, names = self.root.absolute(), [directory_name(part) for part in thread]
        return root.joinpath(*names), root.joinpath(_RECORDS, *names)

    def _layout_of(self, thread: ThreadKey) -> WorkspaceLayout:
        root = self.root.resolve()
        path, record_dir = (root / path.relative_to(self.root.absolute()) for path in self._paths_of(thread))
        return WorkspaceLayout(path, record_dir)

    def _check_root(self) -> None:
        reason = ""
        try:
            make_private_dir(self.root)
        except OSError as error:
            reason = error.strerror or str(error)
        if not reason and not os.access(self.root, os.W_OK | os.X_OK):
            reason = "it is not writable"
        if reason:
            raise ConfigError(
                f"The directory of the workspaces, {self.root}, cannot be used: {reason}. Choose one that this user can write to, with "
                "AMBIENT_WORKSPACE or the setting workspace."
            )

    def _make_layout(self, thread: ThreadKey) -> WorkspaceLayout:
        layout = self._layout_of(thread)
        try:
            make_private_dir(self.root)
            for part in self._parts_below_root(self._paths_of(thread)[0]):
                make_directory(part)
            self._make_record(layout, thread)
            layout.create_missing()
        except OSError as error:
            raise ServiceError(CANNOT_WRITE) from error
        return layout

    def _make_record(self, layout: WorkspaceLayout, thread: ThreadKey) -> None:
        """Create the directory of the record if it is missing. Raises: ServiceError."""
        if os.path.lexists(layout.record_dir):
            return
        try:
            for part in self._parts_below_root(self._paths_of(thread)[1].parent):
                make_directory(part)
            create_record(layout)
        except OSError as error:
            raise ServiceError(CANNOT_WRITE) from error

    def _parts_below_root(self, path: Path) -> list[Path]:
        """Return the directories from below the root to this one."""
        root = self.root.absolute()
        return [*reversed([part for part in path.parents if part != root and part.is_relative_to(root)]), path]

    def _existing_path(self, path: Path) -> Path | None:
        """Return the directory, or what an agent has put in the place of it or of a parent; None if there is nothing."""
        for part in self._parts_below_root(path):
            if not is_directory(part):
                return part if os.path.lexists(part) else None
        return path

    def _erase_tree(self, path: Path) -> None:
        """Rename the directory into the trash first, so that nothing finds it, then delete it."""
        existing = self._existing_path(path)
        if existing is None:
            return
        trashed = self.root / _TRASH / os.urandom(8).hex()
        try:
            self._make_trash()
            for directory in (existing.parent, existing):
                if is_directory(directory):
                    make_writable(directory)
            existing.rename(trashed)
        except OSError as error:
            raise ServiceError(_NOT_ERASED) from error
        if not remove_tree(trashed):
            raise ServiceError(_NOT_ERASED)

    def _make_trash(self) -> None:
        trash = self.root / _TRASH
        if not is_directory(trash):
            trash.unlink(missing_ok=True)
        trash.mkdir(mode=0o700, exist_ok=True)

    def _empty_trash(self) -> None:
        trash = self.root / _TRASH
        if is_directory(trash):
            for path in trash.iterdir():
                remove_tree(path)


def _check_schemes(schemes: tuple[str, ...]) -> None:
    known = get_args(Scheme)
    unknown = [scheme for scheme in schemes if scheme not in known]
    if unknown:
        raise ConfigError(
            f"`git.schemes` contains {unknown[0]!r}, which is not supported. Choose among {', '.join(known)}."
        )


def _take_snapshot(layout: WorkspaceLayout, manifest: WorkspaceManifest, branch: str) -> Workspace:
    repos = tuple(
        Repo(name=repo.name, url=repo.url, path=layout.repo_path(repo.directory), branch=branch)
        for repo in manifest.repos
        if is_directory(layout.repo_path(repo.directory))
    )
    workflow = _snapshot_workflow(layout, manifest.workflow) if manifest.workflow else None
    directories = [*(repo.path for repo in repos), layout.artifacts, layout.uploads]
    cwd = workflow.directory if workflow else directories[0]
    return Workspace(
        path=layout.path,
        cwd_path=cwd,
        add_dirs=tuple(directory for directory in directories if directory != cwd),
        repos=repos,
        workflow=workflow,
        artifacts=layout.artifacts,
        uploads=layout.uploads,
    )


def _snapshot_workflow(layout: WorkspaceLayout, entry: WorkflowEntry) -> Workflow:
    path = layout.workflow_path(entry.directory) / entry.path
    # A link in the path would move the agent's working directory out of the workspace.
    if not is_directory(path) or path.resolve() != path:
        raise ServiceError("The directory of the active workflow no longer exists. Choose the workflow again.")
    return Workflow(url=entry.url, branch=entry.branch, path=entry.path, directory=path, config=entry.config)
