"""TextBypass: delivers text deltas from the model to the run, past the layers of the SDK.

The SDK passes every text delta through ten generators, twice. With the bypass the run gets a delta as soon as the model produces it, and
the SDK gets the deltas joined, before the next other event. The SDK yields nothing while the model streams text, so it runs in a task of
its own. Except for text it is never ahead of the run: after every other event it waits until the run has consumed it.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from strands.models.model import Model

__all__ = ["TextBypass"]

_MAX_QUEUED = 128
"""Number of queued text deltas at which the model is paused."""


class TextBypass:
    """One run of one agent. `tap_model` returns the model to run with, `merge_stream` text deltas and SDK events in order."""

    def __init__(self) -> None:
        self._queue: list[Any] = []
        self._item_queued: asyncio.Future[None] | None = None
        self._queue_consumed: asyncio.Future[None] | None = None
        self._is_closed = False

    def tap_model(self, model: Model) -> Model:
        """Return the model with its text deltas tapped. It is otherwise unchanged."""
        return cast("Model", _TappedModel(model, self))

    async def merge_stream(self, natives: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yield text deltas as strings, and the SDK's events. The SDK runs until this is closed or the task is cancelled."""
        running = asyncio.create_task(self._run_sdk(natives))  # a generator must not yield inside a task group
        running.add_done_callback(lambda _: self._wake_consumer())
        try:
            while not running.done() or self._queue:
                items, self._queue = self._queue, []
                for item in items:
                    yield item
                await self._wait_for_items(running)
            running.result()
        finally:
            self._is_closed = True
            await _cancel_and_wait(running)

    def put(self, item: Any) -> None:
        """Queue a text delta or an event for the run."""
        if not self._is_closed:
            self._queue.append(item)
            self._wake_consumer()

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= _MAX_QUEUED

    async def wait_until_consumed(self) -> None:
        """Wait until the run has consumed everything and asks for more."""
        if not self._is_closed:
            self._queue_consumed = asyncio.get_running_loop().create_future()
            await self._queue_consumed

    async def _run_sdk(self, natives: AsyncGenerator[Any, None]) -> None:
        async for native in natives:
            self.put(native)
            try:
                await self.wait_until_consumed()
            except asyncio.CancelledError:
                _cancel_current_task()  # repeat it inside the SDK: only from there do all of its generators close

    async def _wait_for_items(self, running: asyncio.Task[None]) -> None:
        if self._queue or running.done():
            return
        if self._queue_consumed is not None and not self._queue_consumed.done():
            self._queue_consumed.set_result(None)
        self._item_queued = asyncio.get_running_loop().create_future()
        await self._item_queued

    def _wake_consumer(self) -> None:
        if self._item_queued is not None and not self._item_queued.done():
            self._item_queued.set_result(None)


class _TappedModel:
    """A model whose text goes to the bypass. The SDK gets the first delta at once, because it measures its time, and the rest joined."""

    def __init__(self, model: Model, bypass: TextBypass) -> None:
        self._model = model
        self._bypass = bypass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        bypass, cancel_signal = self._bypass, options.get("cancel_signal") or threading.Event()
        has_first_delta, deltas = False, list[str]()
        async with _closing_stream(self._model.stream(*args, **options)) as chunks:
            async for chunk in chunks:
                text = _text_delta(chunk)
                if text is None or cancel_signal.is_set():
                    if deltas:
                        yield _join_deltas(deltas)
                        deltas = []
                    yield chunk
                    continue
                bypass.put(text)
                if has_first_delta:
                    deltas.append(text)
                else:
                    has_first_delta = True
                    yield chunk
                if bypass.is_full:
                    await bypass.wait_until_consumed()
        if deltas:
            yield _join_deltas(deltas)


def _text_delta(chunk: Mapping[str, Any]) -> str | None:
    block = chunk.get("contentBlockDelta")
    return None if block is None else block["delta"].get("text")


def _join_deltas(deltas: list[str]) -> dict[str, Any]:
    return {"contentBlockDelta": {"delta": {"text": "".join(deltas)}}}


def _closing_stream(chunks: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """Return a context manager that closes the stream if it can be closed. A model may return any async iterable."""
    return aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext(chunks)


def _cancel_current_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel the task if it still runs, and wait until it has ended. A cancellation meanwhile cancels it again."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            task.cancel()
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would log it as never retrieved
    if cancelled is not None:
        raise cancelled
