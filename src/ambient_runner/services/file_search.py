"""Secrets in files: the bytes of a download or an upload are searched as text, up to a size, in a worker thread."""

from __future__ import annotations

import codecs
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence

    from ambient_runner.projections.redaction import Redactor

__all__ = ["MAX_SEARCHED_BYTES", "CapturedStream", "file_contains_secret"]

MAX_SEARCHED_BYTES = 8 << 20
_WIDE_ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_STEP_BYTES = 1 << 16
"""Bytes that are decoded and searched at once: no copy of a whole file is made, and between two steps the event loop gets its turn."""
_OVERLAP_CHARS = 1 << 13
"""Characters of a step that the next one searches again: more than the longest text in which a secret is recognised."""


async def file_contains_secret(name: str, data: Sequence[bytes | bytearray], redactor: Redactor) -> bool:
    """Return True if the name of a file or its bytes, read as text of any encoding of Unicode, contain a secret.

    `data` are the bytes in parts of any size.
    """
    return await to_thread.run_sync(_search_file, name, data, redactor)


def _search_file(name: str, data: Sequence[bytes | bytearray], redactor: Redactor) -> bool:
    return any(_text_contains_secret(text, redactor) for text in ((name,), *_decode_texts(data)))


def _decode_texts(data: Sequence[bytes | bytearray]) -> Iterator[Iterator[str]]:
    """Yield the bytes as text in parts: as UTF-8, and in each wider encoding that they may be in."""
    yield _decode_parts(_split_steps(data), "utf-8", "replace")
    if any(b"\0" in part for part in data):
        # ASCII in any of the wider encodings, wherever it is in a binary file.
        yield _decode_parts((step.replace(b"\0", b"") for step in _split_steps(data)), "utf-8", "replace")
    for encoding in _WIDE_ENCODINGS:
        yield _decode_parts(_split_steps(data), encoding, "strict")


def _split_steps(data: Sequence[bytes | bytearray]) -> Iterator[bytes | bytearray]:
    for part in data:
        yield from (part[start : start + _STEP_BYTES] for start in range(0, len(part), _STEP_BYTES))


def _decode_parts(steps: Iterable[bytes | bytearray], encoding: str, errors: str) -> Iterator[str]:
    """Yield the text up to the first bytes that are no character: a file that is not in a wide encoding has such soon."""
    # Without `final`, the last character may be cut off.
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    with suppress(UnicodeDecodeError):
        for step in steps:
            yield decoder.decode(step)


def _text_contains_secret(parts: Iterable[str], redactor: Redactor) -> bool:
    searched = ""
    for part in parts:
        searched = searched[-_OVERLAP_CHARS:] + part
        if redactor.redact_text(searched) != searched:
            return True
    return False


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
