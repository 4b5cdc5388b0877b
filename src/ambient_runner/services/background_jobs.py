"""Background jobs owned by the server, not by the request that started them. A second request for the same job joins it; a client that
disconnects does not end it."""

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

    from ambient_runner.ledger.records import ThreadKey

__all__ = ["BackgroundJob", "BackgroundJobs", "JobKey", "finished_job"]

T = TypeVar("T")


class JobKey(NamedTuple):
    """Identity of a job. At most one job per key runs at a time."""

    thread: ThreadKey
    kind: str
    name: str = ""


@dataclass(kw_only=True, eq=False, slots=True)
class BackgroundJob(Generic[T]):
    """One job. `request` describes what was requested, so that callers can tell whether a running job does the same work."""

    key: JobKey
    request: Hashable
    work: Callable[[], Awaitable[T]]
    on_done: Callable[[BackgroundJob[T]], Awaitable[None]]
    """Called with the finished job before any waiter resumes. Not called when the job was cancelled."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    result: list[T] = field(default_factory=list[T])
    """The result as the only item; empty until the job is done. A list, because None is a valid result."""
    error: RunnerError | None = None

    async def run(self) -> None:
        """Run the work and set `done`, whatever happens."""
        try:
            with (
                self.scope,
                isolate(f"running the {self.key.kind} job {self.key.name!r} of thread {self.key.thread.id!r}"),
            ):
                try:
                    self.result.append(await self.work())
                except RunnerError as error:
                    self.error = error
                await self.on_done(self)
        finally:
            self.done.set()

    async def wait_for_result(self) -> T:
        """Wait until the job is done and return its result.

        Raises: what the work raised; Draining when the server shuts down; ServiceError when it was cancelled or failed unexpectedly.
        """
        await self.done.wait()
        if self.result:
            return self.result[0]
        if self.error:
            raise self.error
        if self.scope.cancel_called:
            raise ServiceError(
                "This was cancelled because its repository or thread was removed. Send the request again if you still want it."
            )
        raise ServiceError


def finished_job(key: JobKey, result: T) -> BackgroundJob[T]:
    """Return a job that is already done."""

    async def work() -> T:
        return result

    job = BackgroundJob(key=key, request=None, work=work, on_done=_ignore_outcome, result=[result])
    job.done.set()
    return job


async def _ignore_outcome(job: BackgroundJob[T]) -> None: ...


class BackgroundJobs:
    """The running jobs of a server. Leaving the `async with` cancels all of them."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, BackgroundJob[object]] = {}
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel_all()
        await self._stack.__aexit__(kind, error, trace)

    def cancel_all(self) -> None:
        """Cancel all jobs without waiting, and accept no more. Waiters get Draining."""
        self._tasks = None
        for job in self._jobs.values():
            job.error = Draining()
            job.scope.cancel()

    def for_thread(self, thread: ThreadKey) -> list[BackgroundJob[object]]:
        return [job for job in self._jobs.values() if job.key.thread == thread]

    def find(self, key: JobKey) -> BackgroundJob[object] | None:
        return self._jobs.get(key)

    def start_or_join(
        self,
        key: JobKey,
        request: Hashable,
        work: Callable[[], Awaitable[T]],
        on_done: Callable[[BackgroundJob[T]], Awaitable[None]] | None = None,
    ) -> BackgroundJob[T]:
        """Return the job with this key, started now unless it is running. It runs whether or not a caller waits for it.

        Raises: Draining while the server shuts down.
        """
        found = self._jobs.get(key)
        if found is None:
            found = self._start_job(
                BackgroundJob(key=key, request=request, work=work, on_done=on_done or _ignore_outcome)
            )
        return cast("BackgroundJob[T]", found)

    def _start_job(self, job: BackgroundJob[T]) -> BackgroundJob[object]:
        if self._tasks is None:
            raise Draining
        begun = cast("BackgroundJob[object]", job)
        self._jobs[job.key] = begun
        self._tasks.start_soon(self._run_job, begun)
        return begun

    async def _run_job(self, job: BackgroundJob[object]) -> None:
        try:
            await job.run()
        finally:
            del self._jobs[job.key]

    async def cancel_and_wait(self, *jobs: BackgroundJob[object]) -> None:
        """Cancel these jobs and wait until they have cleaned up."""
        for job in jobs:
            job.scope.cancel()
        for job in jobs:
            await job.done.wait()
