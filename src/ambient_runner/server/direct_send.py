"""Writing to the server from where something happens, outside of any task: waking a task for each event costs more than sending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["DIRECT", "Begun", "begin", "direct"]

DIRECT = "ambient.send"
"""Where a request's scope holds the server's own `send`."""


def direct(app: ASGIApp) -> ASGIApp:
    """The app, whose streams write to the server itself.

    For a server whose `send` is plain asyncio, and an app without middleware that changes bodies: once a stream has begun, they do not
    pass through what stands between.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope[DIRECT] = send
        await app(scope, receive, send)

    return serve


class Begun:
    """A coroutine that was begun outside of any task and has to wait: awaiting this goes on with it."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._waits_for
            yield from self._work.__await__()
        finally:
            self._work.close()


def begin(work: Awaitable[None]) -> Begun | None:
    """Run a coroutine of plain asyncio as far as it goes; None when it is done."""
    coroutine = cast("Coroutine[Any, Any, None]", work)
    try:
        return Begun(coroutine, coroutine.send(None))
    except StopIteration:
        return None
