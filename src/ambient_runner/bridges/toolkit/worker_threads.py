"""Step a plain iterator in a worker thread, so that an agent that blocks does not block the server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

__all__ = ["iterate_in_thread"]

_MAX_THREADS = 256
"""Steps that run at the same time in one event loop. They do not use the threads of the store."""
_END: Any = object()
_limiter: RunVar[anyio.CapacityLimiter | None] = RunVar("ambient_worker_threads")


async def iterate_in_thread(iterator: Iterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield the values of a plain iterator or generator. Each step runs in a worker thread, with the context of the caller.

    A stop does not wait for a step that blocks: the generator is closed when the step has returned.
    """
    stepper = _Stepper(iterator)
    try:
        while (value := await _run_in_thread(stepper.step)) is not _END:
            yield value
    finally:
        with anyio.CancelScope(shield=True):
            if stepper.request_close():
                await _run_in_thread(stepper.close)


class _Stepper:
    """Steps the iterator, and closes it once: the closing of a generator must wait for the step that is running."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._lock = threading.Lock()
        self._is_stepping = False
        self._is_closing = False

    def step(self) -> Any:
        with self._lock:
            if self._is_closing:
                return _END
            self._is_stepping = True
        try:
            return next(self._iterator, _END)
        finally:
            with self._lock:
                self._is_stepping = False
                is_closing = self._is_closing
            if is_closing:
                self.close()

    def request_close(self) -> bool:
        """Start closing; return True if the caller has to call `close`, False if the running step will."""
        with self._lock:
            self._is_closing = True
            return not self._is_stepping

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if callable(close):
            close()


async def _run_in_thread(function: Any) -> Any:
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_MAX_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
