"""Tasks that monitor something while other work is done, and end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

__all__ = ["start_monitor"]


def start_monitor(tasks: TaskGroup, monitor: Callable[[], Awaitable[None]]) -> anyio.CancelScope:
    """Start a task that monitors something, and return the scope that ends it.

    A task that ends because its group is cancelled keeps the exception, whose frames refer to the request and back to the exception: only
    the garbage collector could free them.
    """
    scope = anyio.CancelScope()

    async def monitor_in_scope() -> None:
        with scope:
            await monitor()

    tasks.start_soon(monitor_in_scope)
    return scope
