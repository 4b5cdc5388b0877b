"""The server's own `send`, called synchronously where a batch is published: waking a task for each event costs more than sending it.

Its connection can also be closed although the client does not read, which ASGI has no message for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = [
    "SERVER_CONNECTION",
    "ServerConnection",
    "SuspendedSend",
    "abort_connection",
    "expose_server_send",
    "is_closing",
    "start_send",
]

SERVER_CONNECTION = "ambient.connection"
"""Key of the ServerConnection in a request's scope."""


class ServerConnection:
    """The server's own `send` for a request, and what sends the rest of the response once the app has returned."""

    __slots__ = ("send", "stream")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.stream: Callable[[Receive], Awaitable[None]] | None = None


def expose_server_send(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that its streams call the server's own `send`, and go on after the app has returned.

    An open stream then holds none of the frames, requests and exit stacks between the server and the response: most of its memory.

    Only for a server whose `send` is plain asyncio, and an app without middleware that changes bodies or acts when a response ends:
    once a stream has started, its bodies bypass all middleware.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        connection = ServerConnection(send)
        # A copy, because the server keeps the scope and the app adds to it.
        await app({**scope, SERVER_CONNECTION: connection}, receive, send)
        stream = connection.stream
        if stream is not None:
            del connection
            await stream(receive)

    return serve


class SuspendedSend:
    """A coroutine that was started outside of any task and is suspended. Awaiting this object resumes it."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._awaited
            yield from self._coroutine.__await__()
        finally:
            self._coroutine.close()


def start_send(work: Awaitable[None]) -> SuspendedSend | None:
    """Run a plain asyncio coroutine until it suspends or ends; return None if it has ended."""
    coroutine = cast("Coroutine[Any, Any, None]", work)
    try:
        return SuspendedSend(coroutine, coroutine.send(None))
    except StopIteration:
        return None


def abort_connection(send: Send) -> bool:
    """Close the connection that uvicorn's own `send` writes to, without waiting until the client has read what was sent.

    Return False if the server is another one. Then the response has to end unfinished, and the server closes the connection in its way.
    """
    abort = getattr(_find_transport(send), "abort", None)
    if abort is None:
        return False
    abort()
    return True


def is_closing(send: Send) -> bool:
    """Return True if the connection that uvicorn's own `send` writes to is closed, or is about to be."""
    transport = _find_transport(send)
    return transport is not None and transport.is_closing()


def _find_transport(send: Send) -> Any:
    return getattr(getattr(send, "__self__", None), "transport", None)
