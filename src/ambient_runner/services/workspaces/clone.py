"""Clone a repository into a folder, and parse the progress git reports on stderr."""

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
from ambient_runner.runs.isolate import isolate
from ambient_runner.services.workspaces.git import NO_BRANCH, Git, Remote
from ambient_runner.services.workspaces.git_logins import login_for
from ambient_runner.services.workspaces.safe_names import thread_branch
from ambient_runner.services.workspaces.safe_trees import DEEPEST, is_within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable, Mapping
    from pathlib import Path

    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.services.workspaces.clone_sources import Source

__all__ = ["CloneProgress", "Cloned", "Cloner", "Limits", "OnProgress", "Order", "Phase", "ProgressReader", "silent"]

_MOST_BRANCHES = 1000
_BETWEEN_STEPS = 0.25
_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a clone may take."""

    seconds: float = 600.0
    most_bytes: int = 4 << 30
    most_files: int = 500_000
    at_once: int = 8
    at_once_each: int = 2
    """Of one owner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What to clone, and how. `granted` are the variables of the actor who asks: only the host's own token is used."""

    name: str
    source: Source
    branch: str | None
    """A branch or tag; None for the default branch."""
    thread_branch: str
    """The branch to make and to be on."""
    owner: Hashable = ""
    """Whose clone it is: owners have places of their own."""
    granted: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of(cls, thread: ThreadKey, name: str, source: Source, branch: str | None, granted: Mapping[str, str]) -> Self:
        """A clone for this thread: on its branch, in one of its owner's places."""
        return cls(
            name=name,
            source=source,
            branch=branch,
            thread_branch=thread_branch(thread.id),
            owner=(thread.tenant, thread.owner),
            granted=granted,
        )

    @property
    def remote(self) -> Remote:
        return Remote(
            source=self.source,
            login=login_for(self.source, self.granted),
            agent=self.granted.get("SSH_AUTH_SOCK", ""),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloned:
    """What the remote had. `branch` is where the thread's branch began; empty in an empty repository."""

    branch: str
    default_branch: str
    branches: tuple[str, ...]


class Cloner:
    """Clones, at most so many at once, and of one owner only some of these: nobody has to wait for another's slow ones."""

    def __init__(self, git: Git, limits: Limits) -> None:
        self._git = git
        self._limits = limits
        self._places = _Places(limits.at_once, limits.at_once_each)

    async def clone(self, order: Order, into: Path, progress: OnProgress) -> Cloned:
        """Clone into a folder that does not exist yet. What is left there after an error or a cancellation is the caller's.

        Raises: ServiceError; InvalidInput when there is no such branch.
        """
        steps = _Steps(order.name, progress)
        await steps.say(CloneProgress(name=order.name, phase="waiting"))
        async with self._places.of(order.owner):
            with anyio.move_on_after(self._limits.seconds) as scope:
                cloned = await self._within_size(order, into, steps)
                await steps.say(CloneProgress(name=order.name, phase="done", percent=100))
                return cloned
            assert scope.cancelled_caught
        raise CloneTimeout(
            f"The clone took longer than {self._limits.seconds:g} seconds and was ended. Try again, or choose a smaller repository."
        )

    async def _within_size(self, order: Order, into: Path, steps: _Steps) -> Cloned:
        cloned: list[Cloned] = []
        failed: list[ServiceError | InvalidInput] = []

        async def work() -> None:
            try:
                cloned.append(await self._clone(order, into, steps))
            except (ServiceError, InvalidInput) as error:
                failed.append(error)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(steps.run)
            await self._grown(into)
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        if not cloned or not await self._fits(into):
            raise self._too_large()
        return cloned[0]

    def _too_large(self) -> RepoTooLarge:
        return RepoTooLarge(
            f"The repository is larger than this server allows ({self._limits.most_bytes >> 20} MiB, "
            f"{self._limits.most_files} files, folders {DEEPEST} deep). Choose a smaller one."
        )

    async def _grown(self, folder: Path) -> None:
        """Comes back when the folder has grown too large. Looking never takes more than a fifth of the time."""
        while True:
            began = time.monotonic()
            if not await self._fits(folder):
                return
            await anyio.sleep(max(_BETWEEN_LOOKS, 4 * (time.monotonic() - began)))

    async def _fits(self, folder: Path) -> bool:
        limits = self._limits
        return await anyio.to_thread.run_sync(
            lambda: is_within(folder, most_bytes=limits.most_bytes, most_files=limits.most_files)
        )

    async def _clone(self, order: Order, into: Path, steps: _Steps) -> Cloned:
        remote = order.remote
        steps.show(CloneProgress(name=order.name, phase="connecting"))
        cloned = await self._refs(order, remote)
        branch = [f"--branch={cloned.branch}"] if cloned.branch else []
        await self._git.run(
            "clone", "--progress", "--template=", "--origin=origin", "--single-branch", "--no-recurse-submodules",
            "--no-local", "--no-checkout", "--depth=1", *branch, "--", order.source.url, str(into),
            remote=remote, on_stderr=steps.hear,
        )  # fmt: skip
        # A few small trees can name themselves millions of times: git would hold every name before it writes the first file.
        names = ("ls-tree", "-r", "-t", "-z", "--name-only", "HEAD")
        if cloned.branch and not await self._git.has_at_most(self._limits.most_files, *names, folder=into):
            raise self._too_large()
        await self._git.run(
            "checkout", "-q", "--progress", "-B", order.thread_branch, folder=into, on_stderr=steps.hear
        )
        # A later `git fetch` by the agent sees all branches, not only the one that was cloned.
        await self._git.run("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*", folder=into)
        if cloned.default_branch == cloned.branch and cloned.branch:
            await self._git.run("remote", "set-head", "origin", cloned.branch, folder=into)
        return cloned

    async def _refs(self, order: Order, remote: Remote) -> Cloned:
        asked = [f"refs/tags/{order.branch}"] if order.branch else []
        found = await self._git.run(
            "ls-remote", "--symref", "--", order.source.url, "HEAD", "refs/heads/*", *asked, remote=remote
        )
        return _choose(found, order.branch)


def _choose(refs: str, asked: str | None) -> Cloned:
    """From the lines of `git ls-remote --symref`. Raises: InvalidInput when there is no such branch or tag."""
    default = ""
    names: set[str] = set()
    for line in refs.splitlines():
        value, _, ref = line.partition("\t")
        if ref == "HEAD" and value.startswith("ref: refs/heads/"):
            default = value.removeprefix("ref: refs/heads/")
        elif ref.startswith("refs/"):
            names.add(ref)
    branches = sorted(ref.removeprefix("refs/heads/") for ref in names if ref.startswith("refs/heads/"))
    if asked and not {f"refs/heads/{asked}", f"refs/tags/{asked}"} & names:
        raise InvalidInput(NO_BRANCH)
    begin = asked or (default if default in branches else next(iter(branches), ""))
    return Cloned(branch=begin, default_branch=default or begin, branches=tuple(branches[:_MOST_BRANCHES]))


class _Places:
    """Room for so many at once, and for so many of each owner. Who waits for a place of their own takes none of the others'."""

    def __init__(self, at_once: int, each: int) -> None:
        self._all = anyio.Semaphore(at_once)
        self._each = each
        self._own: dict[Hashable, anyio.Semaphore] = {}
        self._asked: Counter[Hashable] = Counter()

    @asynccontextmanager
    async def of(self, owner: Hashable) -> AsyncGenerator[None, None]:
        own = self._own.setdefault(owner, anyio.Semaphore(self._each))
        self._asked[owner] += 1
        try:
            async with own, self._all:
                yield
        finally:
            self._asked[owner] -= 1
            if not self._asked[owner]:
                del self._asked[owner], self._own[owner]


class _Steps:
    """Hands progress on, a few times a second: of steps that come faster only the newest is said."""

    def __init__(self, name: str, say: OnProgress) -> None:
        self._reader = ProgressReader(name)
        self._say = say
        self._newest: CloneProgress | None = None
        self._changed = anyio.Event()

    def hear(self, data: bytes) -> None:
        step = self._reader.feed(data)
        if step:
            self.show(step)

    def show(self, step: CloneProgress) -> None:
        self._newest = step
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self._newest:
                await self.say(self._newest)
            await anyio.sleep(_BETWEEN_STEPS)

    async def say(self, step: CloneProgress) -> None:
        with isolate("telling how far a clone is"):
            await self._say(step)


Phase = Literal["waiting", "connecting", "receiving", "resolving", "checking out", "done"]

_PHASES: dict[bytes, Phase] = {
    b"Receiving objects": "receiving",
    b"Resolving deltas": "resolving",
    b"Updating files": "checking out",
}
_STEP = re.compile(rb"(Receiving objects|Resolving deltas|Updating files): +(\d{1,3})%")
_LONGEST_LINE = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneProgress:
    """How far a clone is. `percent` is of this phase."""

    name: str
    phase: Phase
    percent: int = 0


OnProgress = Callable[[CloneProgress], Awaitable[None]]


async def silent(step: CloneProgress) -> None:
    """For those who do not want to hear."""


class ProgressReader:
    """Fed with stderr as it comes, gives the newest step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> CloneProgress | None:
        """The newest step that is complete in what has come so far; None when there is no new one."""
        *complete, self._rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = self._rest[-_LONGEST_LINE:]
        newest: CloneProgress | None = None
        for line in complete:
            match = _STEP.match(line)
            if match:
                newest = CloneProgress(name=self._name, phase=_PHASES[match[1]], percent=min(int(match[2]), 100))
        return newest
