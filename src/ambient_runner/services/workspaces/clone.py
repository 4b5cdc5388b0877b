"""Clone a repository into a directory, and parse the progress git reports on stderr."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

import anyio
import anyio.to_thread

from ambient_runner.errors import CloneTimeout, InvalidInput, RepoTooLarge, ServiceError
from ambient_runner.files.safe_trees import MAX_DEPTH, is_tree_within
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.workspaces.git import NO_SUCH_BRANCH, Git, GitRemote
from ambient_runner.services.workspaces.git_logins import login_for
from ambient_runner.services.workspaces.safe_names import thread_branch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable, Mapping
    from pathlib import Path

    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.services.workspaces.clone_sources import CloneSource

__all__ = [
    "CloneLimits",
    "CloneProgress",
    "CloneRequest",
    "CloneResult",
    "Cloner",
    "OnProgress",
    "Phase",
    "ProgressParser",
    "ignore_progress",
]

_MAX_BRANCHES = 1000
_PROGRESS_INTERVAL = 0.25
"""Seconds between two progress reports."""
_SIZE_CHECK_INTERVAL = 0.5
"""Seconds, at least, between two measurements of a growing clone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneLimits:
    """Limits of a clone, and of clones at a time."""

    timeout: float = 600.0
    max_bytes: int = 4 << 30
    max_files: int = 500_000
    max_concurrent: int = 8
    max_concurrent_per_owner: int = 2
    """Concurrent clones of one owner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneRequest:
    """A repository to clone. `environment` holds the variables granted to the actor; only the token of the repository's host is used."""

    name: str
    source: CloneSource
    branch: str | None
    """A branch or tag; None for the default branch."""
    thread_branch: str
    """The branch to create and check out."""
    owner: Hashable = ""
    """Owner of the clone; the number of concurrent clones is limited per owner."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def for_thread(
        cls, thread: ThreadKey, name: str, source: CloneSource, branch: str | None, environment: Mapping[str, str]
    ) -> Self:
        """Return the request for a clone on the thread's branch, counted for its owner."""
        return cls(
            name=name,
            source=source,
            branch=branch,
            thread_branch=thread_branch(thread.id),
            owner=(thread.tenant, thread.owner),
            environment=environment,
        )

    @property
    def remote(self) -> GitRemote:
        return GitRemote(
            source=self.source,
            login=login_for(self.source, self.environment),
            ssh_agent=self.environment.get("SSH_AUTH_SOCK", ""),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneResult:
    """Branches of the remote. `branch` is the one the thread's branch started from; empty in an empty repository."""

    branch: str
    default_branch: str
    branches: tuple[str, ...]


class Cloner:
    """Clones repositories, with a limit in total and one per owner, so that one owner's slow clones do not block the others."""

    def __init__(self, git: Git, limits: CloneLimits) -> None:
        self._git = git
        self._limits = limits
        self._slots = _CloneSlots(limits.max_concurrent, limits.max_concurrent_per_owner)

    async def clone(self, request: CloneRequest, target: Path, on_progress: OnProgress) -> CloneResult:
        """Clone into a directory that does not exist yet. After an error or a cancellation the caller removes what is left there.

        Raises: ServiceError; InvalidInput when there is no such branch.
        """
        progress = _ProgressThrottle(request.name, on_progress)
        await progress.publish(CloneProgress(name=request.name, phase="waiting"))
        async with self._slots.acquire_for(request.owner):
            with anyio.move_on_after(self._limits.timeout) as scope:
                result = await self._clone_within_size(request, target, progress)
                await progress.publish(CloneProgress(name=request.name, phase="done", percent=100))
                return result
            assert scope.cancelled_caught
        raise CloneTimeout(
            f"The clone took longer than {self._limits.timeout:g} seconds and was stopped. Try again, or choose a smaller repository."
        )

    async def _clone_within_size(self, request: CloneRequest, target: Path, progress: _ProgressThrottle) -> CloneResult:
        results: list[CloneResult] = []
        errors: list[ServiceError | InvalidInput] = []

        async def work() -> None:
            try:
                results.append(await self._run_git_clone(request, target, progress))
            except (ServiceError, InvalidInput) as error:
                errors.append(error)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(progress.run)
            await self._wait_until_too_large(target)
            tasks.cancel_scope.cancel()
        if errors:
            raise errors[0]
        if not results or not await self._is_within_limits(target):
            raise self._too_large_error()
        return results[0]

    def _too_large_error(self) -> RepoTooLarge:
        return RepoTooLarge(
            f"The repository is larger than this server allows ({self._limits.max_bytes >> 20} MiB, "
            f"{self._limits.max_files} files, directories {MAX_DEPTH} deep). Choose a smaller one."
        )

    async def _wait_until_too_large(self, directory: Path) -> None:
        """Return when the directory has grown too large. Measuring takes at most a fifth of the time."""
        while True:
            started = time.monotonic()
            if not await self._is_within_limits(directory):
                return
            await anyio.sleep(max(_SIZE_CHECK_INTERVAL, 4 * (time.monotonic() - started)))

    async def _is_within_limits(self, directory: Path) -> bool:
        limits = self._limits
        return await anyio.to_thread.run_sync(
            lambda: is_tree_within(directory, max_bytes=limits.max_bytes, max_files=limits.max_files)
        )

    async def _run_git_clone(self, request: CloneRequest, target: Path, progress: _ProgressThrottle) -> CloneResult:
        remote = request.remote
        progress.offer(CloneProgress(name=request.name, phase="connecting"))
        result = await self._read_remote_refs(request, remote)
        branch_option = [f"--branch={result.branch}"] if result.branch else []
        await self._git.run(
            "clone", "--progress", "--template=", "--origin=origin", "--single-branch", "--no-recurse-submodules",
            "--no-local", "--no-checkout", "--depth=1", *branch_option, "--", request.source.url, str(target),
            remote=remote, on_stderr=progress.feed_stderr,
        )  # fmt: skip
        # Nested trees can name the same few objects millions of times, and git holds every name in memory before it writes a file.
        names = ("ls-tree", "-r", "-t", "-z", "--name-only", "HEAD")
        if result.branch and not await self._git.prints_at_most(self._limits.max_files, *names, cwd=target):
            raise self._too_large_error()
        await self._git.run(
            "checkout", "-q", "--progress", "-B", request.thread_branch, cwd=target, on_stderr=progress.feed_stderr
        )
        # A later `git fetch` by the agent sees all branches, not only the one that was cloned.
        await self._git.run("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*", cwd=target)
        if result.default_branch == result.branch and result.branch:
            await self._git.run("remote", "set-head", "origin", result.branch, cwd=target)
        return result

    async def _read_remote_refs(self, request: CloneRequest, remote: GitRemote) -> CloneResult:
        tag_pattern = [f"refs/tags/{request.branch}"] if request.branch else []
        refs = await self._git.run(
            "ls-remote", "--symref", "--", request.source.url, "HEAD", "refs/heads/*", *tag_pattern, remote=remote
        )
        return _choose_branch(refs, request.branch)


def _choose_branch(refs: str, requested: str | None) -> CloneResult:
    """Choose the branch from the output of `git ls-remote --symref`. Raises: InvalidInput when there is no such branch or tag."""
    default = ""
    names: set[str] = set()
    for line in refs.splitlines():
        value, _, ref = line.partition("\t")
        if ref == "HEAD" and value.startswith("ref: refs/heads/"):
            default = value.removeprefix("ref: refs/heads/")
        elif ref.startswith("refs/"):
            names.add(ref)
    branches = sorted(ref.removeprefix("refs/heads/") for ref in names if ref.startswith("refs/heads/"))
    if requested and not {f"refs/heads/{requested}", f"refs/tags/{requested}"} & names:
        raise InvalidInput(NO_SUCH_BRANCH)
    start = requested or (default if default in branches else next(iter(branches), ""))
    return CloneResult(branch=start, default_branch=default or start, branches=tuple(branches[:_MAX_BRANCHES]))


class _CloneSlots:
    """Slots in total and per owner. An owner that waits for its own slots holds none of the total."""

    def __init__(self, total: int, per_owner: int) -> None:
        self._all = anyio.Semaphore(total)
        self._limit_per_owner = per_owner
        self._per_owner: dict[Hashable, anyio.Semaphore] = {}
        self._users: Counter[Hashable] = Counter()

    @asynccontextmanager
    async def acquire_for(self, owner: Hashable) -> AsyncGenerator[None, None]:
        semaphore = self._per_owner.setdefault(owner, anyio.Semaphore(self._limit_per_owner))
        self._users[owner] += 1
        try:
            async with semaphore, self._all:
                yield
        finally:
            self._users[owner] -= 1
            if not self._users[owner]:
                del self._users[owner], self._per_owner[owner]


class _ProgressThrottle:
    """Publishes progress a few times a second; of steps that come faster only the newest."""

    def __init__(self, name: str, on_progress: OnProgress) -> None:
        self._parser = ProgressParser(name)
        self._on_progress = on_progress
        self._newest: CloneProgress | None = None
        self._changed = anyio.Event()

    def feed_stderr(self, data: bytes) -> None:
        step = self._parser.feed(data)
        if step:
            self.offer(step)

    def offer(self, step: CloneProgress) -> None:
        self._newest = step
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._newest:
                await self.publish(self._newest)
            await anyio.sleep(_PROGRESS_INTERVAL)

    async def publish(self, step: CloneProgress) -> None:
        with isolate(f"reporting the progress of the clone {step.name!r}"):
            await self._on_progress(step)


Phase = Literal["waiting", "connecting", "receiving", "resolving", "checking out", "done"]

_PHASES: dict[bytes, Phase] = {
    b"Receiving objects": "receiving",
    b"Resolving deltas": "resolving",
    b"Updating files": "checking out",
}
_PROGRESS_LINE = re.compile(rb"(Receiving objects|Resolving deltas|Updating files): +(\d{1,3})%")
_MAX_LINE_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneProgress:
    """Progress of a clone. `percent` is that of the phase."""

    name: str
    phase: Phase
    percent: int = 0


OnProgress = Callable[[CloneProgress], Awaitable[None]]


async def ignore_progress(step: CloneProgress) -> None:
    """Discard progress."""


class ProgressParser:
    """Parses git's stderr as it arrives into progress steps."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> CloneProgress | None:
        """Return the newest step completed by this data; None if there is none."""
        *complete, self._rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = self._rest[-_MAX_LINE_BYTES:]
        newest: CloneProgress | None = None
        for line in complete:
            match = _PROGRESS_LINE.match(line)
            if match:
                newest = CloneProgress(name=self._name, phase=_PHASES[match[1]], percent=min(int(match[2]), 100))
        return newest
