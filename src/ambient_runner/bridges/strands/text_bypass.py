"""A shortcut for text: from the model to the run, past the layers of the SDK.

The SDK hands every piece of text through ten generators, twice. Here the run hears a piece as soon as the model says it, and the SDK gets
them joined, when something else comes. While the model speaks the SDK says nothing, so it runs in a task of its own. Apart from text it is
never ahead of the run: after every other event it waits until that one has been told.
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

__all__ = ["Shortcut"]

_MOST = 128
"""Pieces of text that may wait to be told."""


class Shortcut:
    """One run of one agent: `of` is the model that takes it, `told` everything that is said, in order."""

    def __init__(self) -> None:
        self._said: list[Any] = []
        self._news: asyncio.Future[None] | None = None
        self._told: asyncio.Future[None] | None = None
        self._is_over = False

    def of(self, model: Model) -> Model:
        """The model, heard from here on. Everything else about it stays as it is."""
        return cast("Model", _Heard(model, self))

    async def told(self, natives: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Pieces of text as strings, and the events of the SDK, which runs until this is closed or the task is cancelled."""
        running = asyncio.create_task(self._run(natives))  # In a task group a generator may not yield.
        running.add_done_callback(lambda _: self._wake())
        try:
            while not running.done() or self._said:
                said, self._said = self._said, []
                for one in said:
                    yield one
                await self._more(running)
            running.result()
        finally:
            self._is_over = True
            await _ended(running)

    def tell(self, said: Any) -> None:
        if not self._is_over:
            self._said.append(said)
            self._wake()

    @property
    def is_full(self) -> bool:
        return len(self._said) >= _MOST

    async def caught_up(self) -> None:
        """Until everything has been told, and whoever heard it wants more."""
        if not self._is_over:
            self._told = asyncio.get_running_loop().create_future()
            await self._told

    async def _run(self, natives: AsyncGenerator[Any, None]) -> None:
        async for native in natives:
            self.tell(native)
            try:
                await self.caught_up()
            except asyncio.CancelledError:
                _cancel_this_task()  # It is to strike inside the SDK: only from there all of its generators close.

    async def _more(self, running: asyncio.Task[None]) -> None:
        if self._said or running.done():
            return
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class _Heard:
    """A model whose text is told here. The SDK gets the first piece at once, because it takes the time, and the others joined."""

    def __init__(self, model: Model, shortcut: Shortcut) -> None:
        self._model = model
        self._shortcut = shortcut

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        shortcut, stopping = self._shortcut, options.get("cancel_signal") or threading.Event()
        is_timed, pieces = False, list[str]()
        async with _closing(self._model.stream(*args, **options)) as chunks:
            async for chunk in chunks:
                text = _text(chunk)
                if text is None or stopping.is_set():
                    if pieces:
                        yield _joined(pieces)
                        pieces = []
                    yield chunk
                    continue
                shortcut.tell(text)
                if is_timed:
                    pieces.append(text)
                else:
                    is_timed = True
                    yield chunk
                if shortcut.is_full:
                    await shortcut.caught_up()
        if pieces:
            yield _joined(pieces)


def _text(chunk: Mapping[str, Any]) -> str | None:
    block = chunk.get("contentBlockDelta")
    return None if block is None else block["delta"].get("text")


def _joined(pieces: list[str]) -> dict[str, Any]:
    return {"contentBlockDelta": {"delta": {"text": "".join(pieces)}}}


def _closing(chunks: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """A model may give anything that can be iterated."""
    return aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext(chunks)


def _cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel the task, if it still runs, and wait until it is over. Whoever cancels us meanwhile cancels it again."""
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            task.cancel()
    if not task.cancelled():
        task.exception()  # Nobody is left to hear it, and asyncio would complain of that.
    if cancelled is not None:
        raise cancelled
