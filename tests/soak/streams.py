"""Connections of the soak's clients: at any server, with a limit of silence, so that a server that is stopped does not hold them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tests.e2e.sse import open_stream
from tests.faults.slow_clients import open_slow_stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from tests.e2e.sse import Event, Frame, Stream

__all__ = ["SILENCE", "frames_of", "open_stalled", "opened", "request"]

SILENCE = 4.0  # seconds without a ping after which a client tries another server


@asynccontextmanager
async def opened(
    url: str, method: str = "GET", *, headers: Mapping[str, str] | None = None, body: Event | None = None
) -> AsyncGenerator[Stream]:
    """Open a stream. Raises: OSError, EOFError; TimeoutError, which is an OSError, if the head does not come."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(2 * SILENCE):
            stream = await stack.enter_async_context(open_stream(url, method, headers=headers, body=body))
        yield stream


async def frames_of(stream: Stream) -> AsyncIterator[Frame]:
    """Yield the frames up to the end of the stream. Raises: OSError, EOFError; TimeoutError after a silence."""
    while True:
        async with asyncio.timeout(SILENCE):
            frame = await stream.frame()
        if frame is None:
            return
        yield frame


async def request(url: str, method: str, body: Event | None = None) -> int:
    """Return the status of a request. Raises: OSError, EOFError."""
    async with opened(url, method, body=body) as stream, asyncio.timeout(SILENCE):
        await stream.body()
        return stream.status


@asynccontextmanager
async def open_stalled(url: str, path: str) -> AsyncGenerator[Stream]:
    """Open a stream whose buffers are small: if it is not read, the server soon cannot write. Raises: as `opened`."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(SILENCE):
            stream = await stack.enter_async_context(open_slow_stream(url, path))
        yield stream
