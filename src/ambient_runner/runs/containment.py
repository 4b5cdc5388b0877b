"""Containment of agent code: it runs in tasks of its own, and nothing it does to itself reaches another run or the server.

An adapter is someone else's code: it may cancel itself, try to end the process, or swallow its cancellation. None of that may reach another
run, nor keep this one open. Plain asyncio: a cancel scope would cancel an uncancellable task again and again, at the cost of a core.

SystemExit leaves an asyncio loop from whichever task raises it, and ends every other run with it. It is easily raised: by `argparse`, when
a tool's arguments do not suit it. So tasks that a run starts are wrapped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import anyio

from ambient_runner.errors import BridgeError
from ambient_runner.runs.run import run_if_any

__all__ = ["contain_tasks"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


LeftBehind = set[asyncio.Task[Any]]
"""Tasks that went on after they were cancelled. They hold nothing of ours, but the loop cannot close before they end."""


async def run_apart(
    work: Coroutine[Any, Any, T], cut: asyncio.Future[None], grace: float, left_behind: LeftBehind
) -> T | None:
    """The result of `work`, or None when `cut` came first: it is then cancelled and gets `grace` seconds to end.

    Raises: whatever `work` raises; BridgeError when it cancelled itself or tried to end the process.
    """
    task = asyncio.create_task(_contained(work))
    try:
        await asyncio.wait({task, cut}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            await _end(task, grace, left_behind)
    if task.done() and not task.cancelled():
        return task.result()
    if cut.done():
        return None
    raise BridgeError


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    """asyncio takes these out of the loop, whoever raises them; an agent has no business ending the server."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise BridgeError from error
    except BaseExceptionGroup as error:
        if isinstance(error, Exception):
            raise
        raise BridgeError from error


async def _end(task: asyncio.Task[Any], grace: float, left_behind: LeftBehind) -> None:
    with anyio.CancelScope(shield=True):
        # Asked twice: what waits for a child process in its clean-up, as anyio's do, kills it when it is cancelled again.
        for _ in range(2):
            task.cancel()
            await asyncio.wait({task}, timeout=grace / 2)
            if task.done():
                return
    logger.error("An agent went on after it was cancelled and is left behind")
    left_behind.add(task)
    task.add_done_callback(left_behind.discard)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    """Look at its exception, or asyncio complains that nobody did."""
    if not task.cancelled():
        task.exception()


_Factory = Callable[..., asyncio.Future[Any]]


def contain_tasks() -> None:
    """From here on, a task that a run starts on this loop fails alone. Other tasks stay as they are."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    if not isinstance(before, _Containing):
        loop.set_task_factory(_Containing(before))


class _Containing:
    """A task factory; `before` is the one that was there."""

    def __init__(self, before: _Factory | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        if run_if_any() is not None:
            work = _Contained(work)
        if self._before is not None:
            return self._before(loop, work, **options)
        return asyncio.Task(work, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine, and all that is asked about it; a wrapping one would leave it unawaited when it is cancelled before it begins."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work

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

    def close(self) -> None:
        self._work.close()
