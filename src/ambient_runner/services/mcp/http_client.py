"""How an MCP server over HTTP is spoken to that is only looked at: no redirect is followed, and what it may send has an end.

The `mcp` package reads an answer whole, however long it is, and unpacks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["LONGEST_ANSWER", "http_client"]

LONGEST_ANSWER = 8 << 20


def http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
    """One that follows no redirect: the headers may hold a credential."""
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **(headers or {})},
        timeout=timeout,
        auth=auth,
        follow_redirects=False,
        event_hooks={"response": [_bound]},
    )


async def _bound(response: httpx2.Response) -> None:
    # What is packed all the same is left as it is: unpacked, a little can be more than there is memory.
    response.headers.pop("content-encoding", None)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """An answer that fails when it grows too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > LONGEST_ANSWER:
                raise httpx2.StreamError("the answer is too long")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
