"""A strict little SSE reader over a plain socket: it sees frames as bytes, cuts where it likes, and forgives nothing.

Strict: HTTP/1.1 chunks must be whole and end with the last chunk; lines end in LF only; a frame is one `data:` line with at most one
`id:` before it, or a comment. It uses asyncio streams because hundreds of readers share one core with the server.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

Event = dict[str, Any]


class Truncated(ConnectionError):
    """The body stopped before its last chunk."""


class NotStrict(AssertionError):
    """The bytes are not the SSE this project promises."""


class Frame(NamedTuple):
    """One event as it came: `id` is empty for frames made for this reader, `raw` ends with the blank line."""

    id: str
    data: bytes
    raw: bytes

    @property
    def event(self) -> Event:
        return cast("Event", msgspec.json.decode(self.data))

    @property
    def type(self) -> str:
        return str(self.event["type"])


def parse_frame(raw: bytes) -> Frame | None:
    """The frame, or None for a comment. Raises: NotStrict."""
    if b"\r" in raw:
        raise NotStrict(f"CR in a frame: {raw[:200]!r}")
    lines = raw[:-2].split(b"\n")
    if len(lines) == 1 and lines[0].startswith(b":"):
        return None
    if lines[-1][:6] != b"data: " or len(lines) > 2 or (len(lines) == 2 and lines[0][:4] != b"id: "):
        raise NotStrict(f"not one id and one data line: {raw[:200]!r}")
    return Frame(lines[0][4:].decode() if len(lines) == 2 else "", lines[-1][6:], raw)


class Stream:
    """An answer being read. `frame()` gives the next one, or None when the body ended as it should."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._scanned = 0
        self._left_of_chunk = 0
        self._has_open_chunk = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self.last_id = ""
        """The id of the newest whole frame, to resume with."""

    async def read_head(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *fields = head.rstrip("\r\n").split("\r\n")
        self.status = int(status.split(" ", 2)[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in fields)}

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its proper end. Raises: Truncated."""
        try:
            return await (
                self._next_chunk() if "chunked" in self.headers.get("transfer-encoding", "") else self._whole()
            )
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Truncated("the stream was cut") from error

    async def _next_chunk(self) -> bytes:
        """Read what has arrived of a chunk, as any client does: the rest of it may be cut off."""
        if not self._left_of_chunk:
            self._left_of_chunk = await self._next_chunk_size()
        if not self._left_of_chunk:
            await self._end_chunk()
            return b""
        piece = await self._reader.read(self._left_of_chunk)
        if not piece:
            raise asyncio.IncompleteReadError(b"", self._left_of_chunk)
        self._left_of_chunk -= len(piece)
        self._has_open_chunk = True
        return piece

    async def _next_chunk_size(self) -> int:
        if self._has_open_chunk:
            await self._end_chunk()
        return int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)

    async def _end_chunk(self) -> None:
        self._has_open_chunk = False
        if await self._reader.readexactly(2) != b"\r\n":
            raise NotStrict("a chunk does not end where it says")

    async def _whole(self) -> bytes:
        size, self.headers["content-length"] = int(self.headers.get("content-length", "0")), "0"
        return await self._reader.readexactly(size)

    async def body(self) -> bytes:
        """All that is left, for answers that are not streams."""
        pieces = bytearray(self._buffer)
        while piece := await self.chunk():
            pieces += piece
        self.ended = True
        return bytes(pieces)

    async def frame(self) -> Frame | None:
        """The next frame; comments are passed over. Raises: Truncated, NotStrict."""
        while True:
            end = self._buffer.find(b"\n\n", self._scanned)
            if end >= 0:
                raw = bytes(self._buffer[: end + 2])
                del self._buffer[: end + 2]
                self._scanned = 0
                frame = parse_frame(raw)
                if frame is None:
                    continue
                self.last_id = frame.id or self.last_id
                return frame
            self._scanned = max(0, len(self._buffer) - 1)
            piece = await self.chunk()
            if not piece:
                self.ended = True
                if self._buffer:
                    raise NotStrict(f"the stream ends inside a frame: {bytes(self._buffer[:200])!r}")
                return None
            self._buffer += piece

    async def read(self, count: int) -> list[Frame]:
        """At most this many frames: fewer only at the end of the stream."""
        frames: list[Frame] = []
        while len(frames) < count and (frame := await self.frame()):
            frames.append(frame)
        return frames

    async def rest(self) -> list[Frame]:
        """Every frame up to the proper end of the stream."""
        return [frame async for frame in self]

    async def until(self, kind: str) -> list[Frame]:
        """Every frame up to and including the first of this type. Raises: AssertionError when the stream ends before it."""
        frames: list[Frame] = []
        async for frame in self:
            frames.append(frame)
            if frame.type == kind:
                return frames
        raise AssertionError(f"the stream ended without {kind}: {[frame.type for frame in frames]}")

    async def __aiter__(self) -> AsyncIterator[Frame]:
        while frame := await self.frame():
            yield frame

    def cut(self) -> None:
        """Drop the connection at once, as a lost network would."""
        self._writer.transport.abort()


def request_head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8")


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare socket to a server, for those who write their own HTTP."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def open_stream(
    url: str, method: str = "GET", *, headers: Mapping[str, str] | None = None, body: object = None
) -> AsyncGenerator[Stream]:
    """Send one request and stand at the beginning of its answer's body."""
    address = urlsplit(url)
    data = b"" if body is None else msgspec.json.encode(body)
    fields = {"Host": address.netloc, "Accept": "text/event-stream", **(headers or {})}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    path = address.path or "/"
    async with connect(url) as (reader, writer):
        stream = Stream(reader, writer)
        writer.write(request_head(method, f"{path}?{address.query}" if address.query else path, fields) + data)
        await stream.read_head()
        yield stream
