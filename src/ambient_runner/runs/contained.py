"""Tasks that cannot end the server. A run starts some: an SDK for every tool or node, a tool for its own work.

asyncio takes SystemExit out of the loop, from whichever task it comes, and with it every other run. It is raised more easily than one
thinks: by `argparse`, when a tool's arguments do not suit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from ambient_runner.errors import BridgeError
from ambient_runner.runs.run import run_if_any

__all__ = ["contain_tasks"]

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
