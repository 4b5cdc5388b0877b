"""An agent runs in a task of its own. What it does to itself stays there, and if it will not end it is left behind.

An adapter is someone else's code: it may cancel itself, try to end the process, or swallow its cancellation. None of that may reach another
run, nor keep this one open. Plain asyncio: a cancel scope would ask a deaf task again and again, with all the processor it can get.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ambient_runner.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

logger = logging.getLogger(__name__)

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
