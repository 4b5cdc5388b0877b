"""Containment of agent code: it runs in tasks of its own, and nothing it does to itself reaches another run or the server.

An adapter is foreign code: it may cancel itself, try to end the process, or swallow its cancellation. None of that may affect another
run, nor keep this one open. Plain asyncio: a cancel scope would cancel an uncancellable task in a loop, at the cost of a core.

SystemExit leaves an asyncio loop from any task that raises it, and ends every other run with it. It is easily raised: by `argparse`, for
invalid arguments of a tool. So tasks that a run starts are wrapped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ambient_runner.errors import BridgeError
from ambient_runner.runs.run import current_run_or_none, describe_run

if TYPE_CHECKING:
    from ambient_runner.runs.run import Run

__all__ = ["install_task_guard", "run_of_task"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


UncancellableTasks = set[asyncio.Task[Any]]
"""Tasks that continued after they were cancelled. They hold no resource of the run, but the loop cannot close before they end."""


async def run_agent_task(
    work: Coroutine[Any, Any, T],
    cancel_requested: asyncio.Future[None],
    grace: float,
    uncancellable: UncancellableTasks,
) -> T | None:
    """Return the result of `work`; None if `cancel_requested` is resolved first: then it is cancelled and has `grace` seconds to end.

    Raises: every error of `work`; BridgeError if it cancelled itself or tried to end the process.
    """
    task = asyncio.create_task(_contain_exit(work))
    try:
        await asyncio.wait({task, cancel_requested}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            await _cancel_task(task, grace, uncancellable)
    if task.done() and not task.cancelled():
        try:
            return task.result()
        finally:
            del task  # Its exception refers to this frame: without a reference back, both are freed with the run.
    if cancel_requested.done():
        return None
    raise BridgeError


async def _contain_exit(work: Coroutine[Any, Any, T]) -> T:
    """Raise BridgeError instead of the exceptions that would leave the loop and end the server."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise BridgeError from error
    except BaseExceptionGroup as error:
        if isinstance(error, Exception):
            raise
        raise BridgeError from error


async def _cancel_task(task: asyncio.Task[Any], grace: float, uncancellable: UncancellableTasks) -> None:
    with anyio.CancelScope(shield=True):
        # Twice: clean-up code that waits for a child process, like anyio's, kills it on the second cancellation.
        for _ in range(2):
            task.cancel()
            await asyncio.wait({task}, timeout=grace / 2)
            if task.done():
                return
    logger.error(
        "The agent of %s did not stop after it was cancelled; its task keeps running detached",
        describe_run(current_run_or_none()),
    )
    uncancellable.add(task)
    task.add_done_callback(uncancellable.discard)
    task.add_done_callback(_retrieve_exception)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception, or asyncio logs that it was never retrieved."""
    if not task.cancelled():
        task.exception()


def run_of_task(task: asyncio.Task[Any] | None) -> Run | None:
    """Return the run that started the task, or None. Safe to call from any thread."""
    work = task.get_coro() if task is not None else None
    return work.ambient_run if isinstance(work, _GuardedCoroutine) else None


_Factory = Callable[..., asyncio.Future[Any]]


def install_task_guard() -> None:
    """Make every task that a run starts on this loop fail alone. Other tasks are unaffected."""
    loop = asyncio.get_running_loop()
    previous = loop.get_task_factory()
    if not isinstance(previous, _GuardedTaskFactory):
        loop.set_task_factory(_GuardedTaskFactory(previous))


class _GuardedTaskFactory:
    """A task factory that wraps the coroutines of runs; `previous` is the factory it replaces."""

    def __init__(self, previous: _Factory | None) -> None:
        self._previous = previous

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        run = current_run_or_none()
        if run is not None:
            work = _GuardedCoroutine(work, run)
        if self._previous is not None:
            return self._previous(loop, work, **options)
        return asyncio.Task(work, loop=loop, **options)


class _GuardedCoroutine(Coroutine[Any, Any, Any]):
    """A proxy of a coroutine. An `async def` wrapper would leave it unawaited if it is cancelled before it begins."""

    def __init__(self, work: Coroutine[Any, Any, Any], run: Run) -> None:
        self._work = work
        self.ambient_run = run
        """The run that started the task."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        try:
            return self._work.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise BridgeError from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise BridgeError from raised
        finally:
            del error  # It refers to this frame, and only the collector could free a cycle.

    def close(self) -> None:
        self._work.close()
