"""Repositories of a workspace: cloned in the background, removed between runs, and looked at without the network."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from ambient_runner.errors import RepoConflict, RunnerError, ServiceError, UnknownRepo
from ambient_runner.services.background_jobs import JobKey, done
from ambient_runner.services.workspaces.branches import read_refs
from ambient_runner.services.workspaces.clone import Order, silent
from ambient_runner.services.workspaces.clone_sources import without_git
from ambient_runner.services.workspaces.manifest import RepoEntry
from ambient_runner.services.workspaces.safe_files import is_folder
from ambient_runner.services.workspaces.safe_names import check_branch, check_name, name_of, thread_branch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.background_jobs import Job
    from ambient_runner.services.workspaces.clone import Cloned, OnProgress
    from ambient_runner.services.workspaces.layout import Folder
    from ambient_runner.services.workspaces.manifest import Record
    from ambient_runner.services.workspaces.workspaces import Workspaces

__all__ = ["Added", "Removed", "RepoStatus", "Repos"]

_KIND = "repo"
_FAILURES_KEPT = 1000
_MOST_REPOS = 50
_MOST_UNDER_WAY = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """A repository that is now part of the workspace. The next run finds it."""

    name: str
    path: Path
    newly_cloned: bool
    """False when it was there already."""
    branch: str
    """The thread's own branch, which is checked out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """A repository that is no longer part of the workspace. Its folder goes before the next run."""

    name: str


class RepoStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A repository as clients see it. The URL has no credentials: none with any was ever taken."""

    url: str
    name: str
    branches: tuple[str, ...] = ()
    current_active_branch: str = ""
    """Empty when none is checked out."""
    default_branch: str = ""
    status: Literal["cloning", "ready", "failed"] = "ready"
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What makes two requests the same one."""

    url: str
    branch: str | None
    shown: str = field(compare=False)
    """As it was written: with or without `.git` it is the same repository."""


class Repos:
    """The repositories of all workspaces. A clone is a job of theirs: whoever asked for it may leave."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._jobs = workspaces.jobs
        self._failures: OrderedDict[JobKey, RepoStatus] = OrderedDict()
        workspaces.on_forget(self._forget)

    async def add(
        self,
        thread: ThreadKey,
        url: str,
        *,
        branch: str | None = None,
        name: str | None = None,
        environment: Mapping[str, str],
        progress: OnProgress = silent,
        then: Callable[[Job[Added]], Awaitable[None]] | None = None,
    ) -> Job[Added]:
        """The clone of this repository: begun now, under way, or done if it is there. Its `outcome` raises ServiceError when it fails.

        `environment` is what was granted to the actor; git gets the token of the URL's own host and nothing else of it.
        `progress` and `then` hear of a clone that begins here. Raises: InvalidInput, Forbidden, RepoConflict, ServiceError, Draining.
        """
        source = await self._workspaces.rules.checked(url)
        name = check_name(name) if name else name_of(source.url)
        branch = check_branch(branch) if branch else None
        folder = await self._workspaces.opened(thread)
        key, asked = JobKey(thread, _KIND, name), _Asked(url=without_git(source.url), branch=branch, shown=source.url)
        present = await folder.locked(lambda: _present(folder, name, asked))
        if present:
            return done(key, Added(name=name, path=present, newly_cloned=False, branch=thread_branch(thread.id)))
        self._check_under_way(key, asked)
        order = Order.of(thread, name, source, branch, environment)
        return self._jobs.begin(key, asked, lambda: self._clone(key, folder, order, asked, progress), then)

    async def remove(self, thread: ThreadKey, name: str) -> Removed:
        """Take a repository out of the workspace, or call off its clone. A run under way keeps the files until it is over.

        Raises: UnknownRepo, InvalidInput, ServiceError.
        """
        key = JobKey(thread, _KIND, check_name(name))
        job, failure = self._jobs.find(key), self._failures.pop(key, None)
        if job:
            await self._jobs.cancel(job)
            self._failures.pop(key, None)
        was_there = await self._workspaces.change(thread, lambda folder: _remove(folder, name))
        if was_there or job or failure:
            return Removed(name=name)
        raise UnknownRepo

    async def status(self, thread: ThreadKey) -> list[RepoStatus]:
        """What there is, what is on its way and what failed. It asks no network. Raises: ServiceError."""
        folder = await self._workspaces.existing(thread)
        ready = [await self._look(folder, entry) for entry in (await folder.record()).repos] if folder else []
        names = {repo.name for repo in ready}
        cloning = [
            RepoStatus(url=job.about.shown, name=job.key.name, status="cloning")
            for job in self._jobs.under_way(thread)
            if isinstance(job.about, _Asked)
        ]
        names |= {repo.name for repo in cloning}
        failed = [repo for key, repo in self._failures.items() if key.thread == thread and repo.name not in names]
        return [*ready, *cloning, *failed]

    def _check_under_way(self, key: JobKey, asked: _Asked) -> None:
        job = self._jobs.find(key)
        if job and job.about != asked:
            raise RepoConflict("Another repository is being cloned under that name. Choose another name.")
        cloning = [other for other in self._jobs.under_way(key.thread) if other.key.kind == _KIND]
        if not job and len(cloning) >= _MOST_UNDER_WAY:
            raise RepoConflict(
                "Too many repositories are being cloned for this thread. Wait until some of them are there."
            )

    async def _clone(self, key: JobKey, folder: Folder, order: Order, asked: _Asked, progress: OnProgress) -> Added:
        self._failures.pop(key, None)
        try:
            async with folder.scratch() as scratch:
                tree = scratch / "tree"
                cloned = await self._workspaces.cloner.clone(order, tree, progress)
                return await folder.locked(lambda: _keep(folder, order, asked, tree, cloned))
        except RunnerError as error:
            self._remember(key, RepoStatus(url=asked.shown, name=key.name, status="failed", error=error.message))
            raise

    def _remember(self, key: JobKey, failure: RepoStatus) -> None:
        self._failures[key] = failure
        while len(self._failures) > _FAILURES_KEPT:
            self._failures.popitem(last=False)

    async def _look(self, folder: Folder, entry: RepoEntry) -> RepoStatus:
        found = RepoStatus(url=entry.url, name=entry.name, default_branch=entry.default_branch)
        try:
            refs = await read_refs(self._workspaces.git, folder.repo(entry.folder))
        except ServiceError as error:
            return msgspec.structs.replace(found, status="failed", error=error.message)
        branches = tuple(sorted({*entry.branches, *refs.branches}))
        return msgspec.structs.replace(found, branches=branches, current_active_branch=refs.current)

    def _forget(self, thread: ThreadKey) -> None:
        for key in [key for key in self._failures if key.thread == thread]:
            del self._failures[key]


def _present(folder: Folder, name: str, asked: _Asked) -> Path | None:
    """Where this very repository is, if it is there. Raises: RepoConflict when the name is another's."""
    record = folder.read()
    entry = record.repo(name)
    if entry and is_folder(folder.repo(entry.folder)):
        _check_same(entry, asked)
        return folder.repo(entry.folder)
    _check_room(record, name)
    return None


def _check_same(entry: RepoEntry, asked: _Asked) -> None:
    if without_git(entry.url) != asked.url:
        raise RepoConflict
    if asked.branch and asked.branch != entry.branch:
        raise RepoConflict(
            "That repository is here already, from another branch. "
            "Check the branch out there, add the repository under another name, or remove it first."
        )


def _check_room(record: Record, name: str) -> None:
    others = [repo.name.lower() for repo in record.repos if repo.name != name]
    if name.lower() in others:
        raise RepoConflict
    if len(others) >= _MOST_REPOS:
        raise RepoConflict(f"A workspace holds at most {_MOST_REPOS} repositories. Remove one first.")


def _keep(folder: Folder, order: Order, asked: _Asked, tree: Path, cloned: Cloned) -> Added:
    """Make a finished clone part of the workspace. A process that was faster has already done it.

    The record is written first: a crash before the move leaves a repository that says it is gone, and adding it again mends that.
    """
    there = _present(folder, order.name, asked)
    if there:
        return Added(name=order.name, path=there, newly_cloned=False, branch=order.thread_branch)
    record = folder.read()
    entry = RepoEntry(
        name=order.name,
        folder=folder.free("repos", order.name),
        url=order.source.url,
        branch=cloned.branch,
        default_branch=cloned.default_branch,
        branches=cloned.branches,
    )
    others = tuple(repo for repo in record.repos if repo.name != order.name)
    folder.write(msgspec.structs.replace(record, repos=(*others, entry)))
    folder.move_in(tree, folder.repo(entry.folder))
    return Added(name=order.name, path=folder.repo(entry.folder), newly_cloned=True, branch=order.thread_branch)


def _remove(folder: Folder, name: str) -> bool:
    record = folder.read()
    entry = record.repo(name)
    if entry is None:
        return False
    others = tuple(repo for repo in record.repos if repo.name != name)
    stale = (*record.stale, entry.folder)
    folder.write(msgspec.structs.replace(record, repos=others, stale=stale))
    return True
