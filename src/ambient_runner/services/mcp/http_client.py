"""HTTP client for probing MCP servers: it follows no redirect and limits the size of responses.

The `mcp` package reads a whole response into memory, however long, and decompresses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.services.mcp.client import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["MAX_RESPONSE_BYTES", "http_client"]

MAX_RESPONSE_BYTES = 8 << 20


def http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """Return a client that follows no redirect, because the headers may hold a credential."""
    return httpx.AsyncClient(
        headers={"accept-encoding": "identity", **(headers or {})},
        timeout=timeout,
        auth=auth,
        follow_redirects=False,
        event_hooks={"response": [_limit_response]},
    )


async def _limit_response(response: Any) -> None:
    # A response that is compressed all the same is not decompressed: a small one can expand to more than the memory.
    response.headers.pop("content-encoding", None)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    response.stream = _LimitedStream(response.stream)


class _LimitedStream(httpx.AsyncByteStream):
    """A response body that fails when it exceeds the limit."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > MAX_RESPONSE_BYTES:
                raise httpx.StreamError("the response is too long")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
