"""Step a plain iterator in a worker thread, so that an agent that blocks does not block the server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from contextvars import Context

__all__ = ["iterate_in_thread"]

_END: Any = object()


async def iterate_in_thread(iterator: Iterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield the values of a plain iterator or generator. All its steps and its close run in one thread of its own, in one context.

    The context is a copy of the caller's at the first step. A stop does not wait for a step that blocks: the generator is closed when the
    step has returned.
    """
    thread = _StepThread(iterator, await _thread_context())
    thread.start()
    try:
        while (value := await thread.step()) is not _END:
            yield value
    finally:
        closed = thread.request_close()
        if thread.is_stepping:
            closed.cancel()
        else:
            with anyio.CancelScope(shield=True):
                await closed


async def _thread_context() -> Context:
    """Return a copy of the context for a thread. anyio removes the mark of the running event loop, so the thread may run one of its own."""
    return await anyio.to_thread.run_sync(copy_context, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


class _StepThread(threading.Thread):
    """Steps and closes one iterator, on request of the event loop.

    It is a daemon: the interpreter does not wait for a step that never returns. It is not from a pool: such a step takes no thread from
    others.
    """

    def __init__(self, iterator: Iterator[Any], context: Context) -> None:
        super().__init__(name="ambient-agent", daemon=True)
        self.is_stepping = False
        """True while the event loop waits for a step, and after it stopped waiting for a step that had not returned."""
        self._iterator = iterator
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._steps: SimpleQueue[asyncio.Future[Any] | None] = SimpleQueue()
        self._closed: asyncio.Future[Any] = self._loop.create_future()

    async def step(self) -> Any:
        """Return the next value, or `_END`. Raises: what the iterator raises."""
        step: asyncio.Future[Any] = self._loop.create_future()
        self.is_stepping = True
        self._steps.put(step)
        try:
            return await step
        finally:
            self.is_stepping = step.cancelled()

    def request_close(self) -> asyncio.Future[Any]:
        """Close the iterator after the current step, and end the thread. The future is done when it is closed."""
        self._steps.put(None)
        return self._closed

    def run(self) -> None:
        while (step := self._steps.get()) is not None:
            self._settle(step, lambda: next(self._iterator, _END))
        self._settle(self._closed, getattr(self._iterator, "close", lambda: None))

    def _settle(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        context = self._context  # `runs/busy_threads.py` finds it in this frame.
        value, error = None, None
        try:
            value = context.run(work)
        except BaseException as raised:  # noqa: BLE001  the task that waits raises it
            error = raised
        with suppress(RuntimeError):  # The event loop is closed: no task waits.
            self._loop.call_soon_threadsafe(_resolve, future, value, error)


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
