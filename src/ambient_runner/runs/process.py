"""Start of a child process that is not lost if it is cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import Process

__all__ = ["open_process"]


async def open_process(command: Sequence[str], **options: Any) -> Process:
    """Start the process in a session of its own. `options` are those of `anyio.open_process`. Raises: OSError.

    A cancellation is delayed until the process is returned, so that the caller can end it: asyncio kills one whose start is cancelled, but
    anyio then cancels its wait for it too.
    """
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(command, start_new_session=True, **options)
    raise AssertionError("unreachable: a scope that is not cancelled swallows nothing")
