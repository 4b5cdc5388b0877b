"""Secrets in files: the bytes of a download or an upload are searched as text, up to a size, in a worker thread."""

from __future__ import annotations

import codecs
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterator

    from ambient_runner.projections.redaction import Redactor

__all__ = ["MAX_SEARCHED_BYTES", "CapturedStream", "file_contains_secret"]

MAX_SEARCHED_BYTES = 8 << 20
_WIDE_ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_STEP_CHARS = 1 << 16
"""Characters that are searched at once: between two steps the event loop gets its turn."""
_OVERLAP_CHARS = 1 << 13
"""Characters of a step that the next one searches again: more than the longest text in which a secret is recognised."""


async def file_contains_secret(name: str, data: bytes, redactor: Redactor) -> bool:
    """Return True if the name of a file or its bytes, read as text of any encoding of Unicode, contain a secret."""
    return await to_thread.run_sync(_search_file, name, data, redactor)


def _search_file(name: str, data: bytes, redactor: Redactor) -> bool:
    return any(_text_contains_secret(text, redactor) for text in (name, *_decode_texts(data)))


def _decode_texts(data: bytes) -> Iterator[str]:
    """Yield the bytes as text: as UTF-8, and in each wider encoding that they may be in."""
    yield data.decode("utf-8", "replace")
    if b"\0" in data:
        # ASCII in any of the wider encodings, wherever it is in a binary file.
        yield data.replace(b"\0", b"").decode("utf-8", "replace")
    for encoding in _WIDE_ENCODINGS:
        # Other files contain pairs of bytes that are no character. Without `final`, the last character may be cut off.
        with suppress(UnicodeDecodeError):
            yield codecs.getincrementaldecoder(encoding)().decode(data)


def _text_contains_secret(text: str, redactor: Redactor) -> bool:
    parts = (text[start : start + _STEP_CHARS + _OVERLAP_CHARS] for start in range(0, len(text), _STEP_CHARS))
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
