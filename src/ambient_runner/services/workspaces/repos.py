"""Repositories of a workspace: cloned in the background, deleted between runs, and inspected without network access."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from ambient_runner.errors import RepoConflict, RunnerError, ServiceError, UnknownRepo
from ambient_runner.files.safe_files import is_directory
from ambient_runner.services.background_jobs import JobKey, finished_job
from ambient_runner.services.workspaces.branches import read_refs
from ambient_runner.services.workspaces.clone import CloneRequest, ignore_progress
from ambient_runner.services.workspaces.clone_sources import strip_git_suffix
from ambient_runner.services.workspaces.manifest import RepoEntry
from ambient_runner.services.workspaces.safe_names import check_branch, check_name, repo_name_from_url, thread_branch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.services.background_jobs import BackgroundJob
    from ambient_runner.services.workspaces.clone import CloneResult, OnProgress
    from ambient_runner.services.workspaces.layout import WorkspaceLayout
    from ambient_runner.services.workspaces.manifest import WorkspaceManifest
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["AddedRepo", "RemovedRepo", "RepoStatus", "Repos"]

_KIND = "repo"
_MAX_FAILURES = 1000
_MAX_REPOS = 50
_MAX_RUNNING_CLONES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedRepo:
    """A repository that is now part of the workspace. The next run finds it."""

    name: str
    path: Path
    newly_cloned: bool
    """False if the workspace had it already."""
    branch: str
    """The thread's own branch, which is checked out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedRepo:
    """A repository that is no longer part of the workspace. Its directory is deleted before the next run."""

    name: str


class RepoStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A repository as clients see it. The URL has no credentials: such URLs are refused."""

    url: str
    name: str
    branches: tuple[str, ...] = ()
    current_active_branch: str = ""
    """Empty when no branch is checked out."""
    default_branch: str = ""
    status: Literal["cloning", "ready", "failed"] = "ready"
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _RepoRequest:
    """The identity of a request: equal requests share one clone."""

    url: str
    branch: str | None
    shown_url: str = field(compare=False)
    """The URL as it was sent. With or without `.git` it is the same repository."""


class Repos:
    """The repositories of all workspaces. A clone is a background job, so the client may disconnect."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._jobs = workspaces.jobs
        self._failures: OrderedDict[JobKey, RepoStatus] = OrderedDict()
        workspaces.on_erase(self._evict_failures)

    async def add(
        self,
        thread: ThreadKey,
        url: str,
        *,
        branch: str | None = None,
        name: str | None = None,
        environment: Mapping[str, str],
        on_progress: OnProgress = ignore_progress,
        on_done: Callable[[BackgroundJob[AddedRepo]], Awaitable[None]] | None = None,
    ) -> BackgroundJob[AddedRepo]:
        """Return the job that clones this repository: started now, running, or done. Its `wait_for_result` raises ServiceError on failure.

        `environment` holds the variables granted to the actor; git gets the token of the URL's host and nothing else of it.
        `on_progress` and `on_done` are called for a clone that starts here.
        Raises: InvalidInput, Forbidden, RepoConflict, ServiceError, Draining.
        """
        source = await self._workspaces.rules.check_url(url)
        name = check_name(name) if name else repo_name_from_url(source.url)
        branch = check_branch(branch) if branch else None
        layout = await self._workspaces.open_layout(thread)
        key, request = (
            JobKey(thread, _KIND, name),
            _RepoRequest(url=strip_git_suffix(source.url), branch=branch, shown_url=source.url),
        )
        present = await layout.run_locked(lambda: _find_present(layout, name, request))
        if present:
            return finished_job(
                key, AddedRepo(name=name, path=present, newly_cloned=False, branch=thread_branch(thread.id))
            )
        self._check_running_clones(key, request)
        clone_request = CloneRequest.for_thread(thread, name, source, branch, environment)
        return self._jobs.start_or_join(
            key, request, lambda: self._clone_repo(key, layout, clone_request, request, on_progress), on_done
        )

    async def remove(self, thread: ThreadKey, name: str) -> RemovedRepo:
        """Remove a repository from the workspace, or cancel its clone. A current run keeps the files until it ends.

        Raises: UnknownRepo, InvalidInput, ServiceError.
        """
        key = JobKey(thread, _KIND, check_name(name))
        job, failure = self._jobs.find(key), self._failures.pop(key, None)
        if job:
            await self._jobs.cancel_and_wait(job)
            self._failures.pop(key, None)
        was_there = await self._workspaces.change_locked(thread, lambda layout: _remove_entry(layout, name))
        if was_there or job or failure:
            return RemovedRepo(name=name)
        raise UnknownRepo

    async def status(self, thread: ThreadKey) -> list[RepoStatus]:
        """Return the ready, cloning and failed repositories, without network access. Raises: ServiceError."""
        layout = await self._workspaces.find_layout(thread)
        ready = (
            [await self._read_status(layout, entry) for entry in (await layout.load_manifest()).repos] if layout else []
        )
        names = {repo.name for repo in ready}
        cloning = [
            RepoStatus(url=job.request.shown_url, name=job.key.name, status="cloning")
            for job in self._jobs.for_thread(thread)
            if isinstance(job.request, _RepoRequest)
        ]
        names |= {repo.name for repo in cloning}
        failed = [repo for key, repo in self._failures.items() if key.thread == thread and repo.name not in names]
        return [*ready, *cloning, *failed]

    def _check_running_clones(self, key: JobKey, request: _RepoRequest) -> None:
        job = self._jobs.find(key)
        if job and job.request != request:
            raise RepoConflict("Another repository is being cloned under that name. Choose another name.")
        cloning = [other for other in self._jobs.for_thread(key.thread) if other.key.kind == _KIND]
        if not job and len(cloning) >= _MAX_RUNNING_CLONES:
            raise RepoConflict(
                "Too many repositories are being cloned for this thread. Wait until some of them are done."
            )

    async def _clone_repo(
        self,
        key: JobKey,
        layout: WorkspaceLayout,
        clone_request: CloneRequest,
        request: _RepoRequest,
        on_progress: OnProgress,
    ) -> AddedRepo:
        self._failures.pop(key, None)
        try:
            async with layout.scratch_directory() as scratch:
                tree = scratch / "tree"
                result = await self._workspaces.cloner.clone(clone_request, tree, on_progress)
                return await layout.run_locked(lambda: _store_clone(layout, clone_request, request, tree, result))
        except RunnerError as error:
            self._store_failure(
                key, RepoStatus(url=request.shown_url, name=key.name, status="failed", error=error.message)
            )
            raise

    def _store_failure(self, key: JobKey, failure: RepoStatus) -> None:
        self._failures[key] = failure
        while len(self._failures) > _MAX_FAILURES:
            self._failures.popitem(last=False)

    async def _read_status(self, layout: WorkspaceLayout, entry: RepoEntry) -> RepoStatus:
        status = RepoStatus(url=entry.url, name=entry.name, default_branch=entry.default_branch)
        try:
            refs = await read_refs(self._workspaces.git, layout.repo_path(entry.directory))
        except ServiceError as error:
            return msgspec.structs.replace(status, status="failed", error=error.message)
        branches = tuple(sorted({*entry.branches, *refs.branches}))
        return msgspec.structs.replace(status, branches=branches, current_active_branch=refs.current)

    def _evict_failures(self, thread: ThreadKey) -> None:
        for key in [key for key in self._failures if key.thread == thread]:
            del self._failures[key]


def _find_present(layout: WorkspaceLayout, name: str, request: _RepoRequest) -> Path | None:
    """Return the path of exactly this repository, if the workspace has it. Raises: RepoConflict when another one has the name."""
    manifest = layout.read_manifest()
    entry = manifest.find_repo(name)
    if entry and is_directory(layout.repo_path(entry.directory)):
        _check_same_repo(entry, request)
        return layout.repo_path(entry.directory)
    _check_capacity(manifest, name)
    return None


def _check_same_repo(entry: RepoEntry, request: _RepoRequest) -> None:
    if strip_git_suffix(entry.url) != request.url:
        raise RepoConflict
    if request.branch and request.branch != entry.branch:
        raise RepoConflict(
            "The workspace already has this repository, from another branch. "
            "Check out the branch there, add the repository under another name, or remove it first."
        )


def _check_capacity(manifest: WorkspaceManifest, name: str) -> None:
    others = [repo.name.lower() for repo in manifest.repos if repo.name != name]
    if name.lower() in others:
        raise RepoConflict
    if len(others) >= _MAX_REPOS:
        raise RepoConflict(f"A workspace holds at most {_MAX_REPOS} repositories. Remove one first.")


def _store_clone(
    layout: WorkspaceLayout, clone_request: CloneRequest, request: _RepoRequest, tree: Path, result: CloneResult
) -> AddedRepo:
    """Add a finished clone to the workspace, unless another process did so first.

    The manifest is written first: a crash before the move leaves an entry without a directory, which adding the repository again repairs.
    """
    present = _find_present(layout, clone_request.name, request)
    if present:
        return AddedRepo(name=clone_request.name, path=present, newly_cloned=False, branch=clone_request.thread_branch)
    manifest = layout.read_manifest()
    entry = RepoEntry(
        name=clone_request.name,
        directory=layout.free_name("repos", clone_request.name),
        url=clone_request.source.url,
        branch=result.branch,
        default_branch=result.default_branch,
        branches=result.branches,
    )
    others = tuple(repo for repo in manifest.repos if repo.name != clone_request.name)
    layout.write_manifest(msgspec.structs.replace(manifest, repos=(*others, entry)))
    layout.move_into_place(tree, layout.repo_path(entry.directory))
    return AddedRepo(
        name=clone_request.name,
        path=layout.repo_path(entry.directory),
        newly_cloned=True,
        branch=clone_request.thread_branch,
    )


def _remove_entry(layout: WorkspaceLayout, name: str) -> bool:
    manifest = layout.read_manifest()
    entry = manifest.find_repo(name)
    if entry is None:
        return False
    others = tuple(repo for repo in manifest.repos if repo.name != name)
    stale = (*manifest.stale, entry.directory)
    layout.write_manifest(msgspec.structs.replace(manifest, repos=others, stale=stale))
    return True
