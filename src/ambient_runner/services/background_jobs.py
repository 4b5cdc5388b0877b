"""Work that belongs to the server and not to who asked for it: whoever asks again joins it, and leaving does not end it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, cast

import anyio

from ambient_runner.errors import Draining, RunnerError, ServiceError
from ambient_runner.runs.isolate import isolate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from ambient_runner.ledger.base import ThreadKey

__all__ = ["Job", "JobKey", "Jobs", "done"]

T = TypeVar("T")


class JobKey(NamedTuple):
    """Only one job of a key is under way at a time."""

    thread: ThreadKey
    kind: str
    name: str = ""


@dataclass(kw_only=True, eq=False, slots=True)
class Job(Generic[T]):
    """One piece of work. `about` says what was asked, so that only the same question is joined."""

    key: JobKey
    about: Hashable
    work: Callable[[], Awaitable[T]]
    then: Callable[[Job[T]], Awaitable[None]]
    """Told of the result or the error before anyone else. Not when the work was ended from outside."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    result: list[T] = field(default_factory=list[T])
    """What the work gave, alone in the list; empty until then. None could itself be what a job gives."""
    error: RunnerError | None = None

    async def run(self) -> None:
        """Ends with a result or an error, whatever happens."""
        try:
            with self.scope, isolate("working in a workspace"):
                try:
                    self.result.append(await self.work())
                except RunnerError as error:
                    self.error = error
                await self.then(self)
        finally:
            self.done.set()

    async def outcome(self) -> T:
        """What the work gave.

        Raises: what it raised; Draining when the server shuts down; ServiceError when it was cancelled, or failed in a way nobody foresaw.
        """
        await self.done.wait()
        if self.result:
            return self.result[0]
        if self.error:
            raise self.error
        if self.scope.cancel_called:
            raise ServiceError(
                "This was called off before it was done: its repository or thread was removed. Ask again if you still want it."
            )
        raise ServiceError


def done(key: JobKey, result: T) -> Job[T]:
    """A job that had nothing to do."""

    async def work() -> T:
        return result

    job = Job(key=key, about=None, work=work, then=_nothing, result=[result])
    job.done.set()
    return job


async def _nothing(job: Job[T]) -> None: ...


class Jobs:
    """The work under way. Leaving the `async with` ends all of it."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Job[object]] = {}
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call_off()
        await self._stack.__aexit__(kind, error, trace)

    def call_off(self) -> None:
        """End all of it soon, and take no more. Those who wait hear that the server is shutting down."""
        self._tasks = None
        for job in self._jobs.values():
            job.error = Draining()
            job.scope.cancel()

    def under_way(self, thread: ThreadKey) -> list[Job[object]]:
        return [job for job in self._jobs.values() if job.key.thread == thread]

    def find(self, key: JobKey) -> Job[object] | None:
        return self._jobs.get(key)

    def begin(
        self,
        key: JobKey,
        about: Hashable,
        work: Callable[[], Awaitable[T]],
        then: Callable[[Job[T]], Awaitable[None]] | None = None,
    ) -> Job[T]:
        """This work, begun unless it is under way. Nobody has to wait for it. Raises: Draining while the server shuts down."""
        found = self._jobs.get(key)
        if found is None:
            found = self._begin(Job(key=key, about=about, work=work, then=then or _nothing))
        return cast("Job[T]", found)

    def _begin(self, job: Job[T]) -> Job[object]:
        if self._tasks is None:
            raise Draining
        begun = cast("Job[object]", job)
        self._jobs[job.key] = begun
        self._tasks.start_soon(self._run, begun)
        return begun

    async def _run(self, job: Job[object]) -> None:
        try:
            await job.run()
        finally:
            del self._jobs[job.key]

    async def cancel(self, *jobs: Job[object]) -> None:
        """End these, and wait until they have cleaned up."""
        for job in jobs:
            job.scope.cancel()
        for job in jobs:
            await job.done.wait()
