"""Secrets in files: the bytes of a download or an upload are searched as text, up to a size, in a worker thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from ambient_runner.projections.redaction import Redactor

__all__ = ["MAX_SEARCHED_BYTES", "CapturedStream", "holds_secret"]

MAX_SEARCHED_BYTES = 8 << 20
_STEP = 1 << 16
"""Characters that are searched at once: between two steps the event loop gets its turn."""
_OVERLAP = 1 << 13
"""Characters of a step that the next one searches again: more than the longest spelling that is searched for."""


async def holds_secret(data: bytes, redactor: Redactor) -> bool:
    """Return True if the bytes, read as UTF-8 text, hold a secret."""
    return await to_thread.run_sync(_holds_secret, data, redactor)


def _holds_secret(data: bytes, redactor: Redactor) -> bool:
    text = data.decode("utf-8", "replace")
    parts = (text[start : start + _STEP + _OVERLAP] for start in range(0, len(text), _STEP))
    return any(redactor.redact_text(part) != part for part in parts)


class CapturedStream:
    """Passes a stream of bytes on, and keeps its beginning in `data`."""

    def __init__(self, stream: AsyncIterable[bytes], limit: int = MAX_SEARCHED_BYTES) -> None:
        self.data = bytearray()
        self._stream = stream
        self._limit = limit

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._stream:
            self.data += chunk[: self._limit - len(self.data)]
            yield chunk
