"""Fan-out of committed batches to the readers of this process. Loop-side only: nothing here is touched from another thread.

A thread that is read or written has a Channel: the newest batches, up to 1 MiB, and the seq the store is known to have.
Readers hold a position and no queue of their own, so a slow one costs nothing: what it no longer finds in the channel it
reads from the store. Stores publish after their commit, never before.
Plain asyncio futures, one per waiting reader, woken once per publish. A reader may also take what is published at once, where it is
published, and sleep on: waking a task for a single event costs more than sending it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ambient_runner.errors import UnknownThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ambient_runner.ledger.base import Batch, Taker, ThreadInfo, ThreadKey

RETAINED = 1 << 20
_RETAINED_UNREAD = 1 << 16
"""What a channel keeps when only its writer uses it: enough for the reader that comes right after `begin`."""


class Channel:
    """What this process knows of one life of one thread."""

    __slots__ = ("_batches", "_loop", "_size", "_waiting", "gone", "key", "last", "life", "readers", "users")

    def __init__(self, key: ThreadKey) -> None:
        self.key = key
        self._loop: asyncio.AbstractEventLoop | None = None
        self.life = ""
        """The thread's epoch; empty until it is known to exist."""
        self.last = 0
        """The newest seq known to be committed."""
        self.gone = False
        self.users = 0
        self.readers = 0
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._waiting: dict[asyncio.Future[None], Taker | None] = {}

    def prepare(self, batch: Batch) -> None:
        """Tell readers of a batch that is being written."""
        for taker in self._waiting.values():
            if taker is not None:
                taker.prepare(batch)

    def publish(self, batch: Batch) -> None:
        """Take a committed batch. After a hole (another process wrote in between) only what follows it is retained."""
        if batch.last <= self.last and self._batches and batch.last <= self._batches[-1].last:
            return
        if self._batches and batch.first != self._batches[-1].last + 1:
            self._batches.clear()
            self._size = 0
        self._batches.append(batch)
        self._size += batch.size
        self._shrink()
        if batch.last > self.last:
            self.last = batch.last
            self._wake(batch)

    def learn(self, last: int) -> None:
        """The store has entries up to `last`, wherever they came from."""
        if last > self.last:
            self.last = last
            self._wake()

    def end(self) -> None:
        self.gone = True
        self._batches.clear()
        self._wake()

    def after(self, position: int) -> list[Batch]:
        """The retained batches from `position + 1` on; empty when there is none or the first needed one is no longer here."""
        found: list[Batch] = []
        for batch in reversed(self._batches):
            if batch.last <= position:
                break
            found.append(batch)
        if not found or found[-1].first > position + 1:
            return []
        found.reverse()
        found[0] = cut(found[0], position + 1)
        return found

    async def changed(self, taker: Taker | None = None) -> None:
        """Wait for the next news. With a `taker`, only for such as it does not take."""
        self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = taker
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def _wake(self, batch: Batch | None = None) -> None:
        waiting, self._waiting = self._waiting, {}
        for future, taker in waiting.items():
            if batch is not None and taker is not None and taker.take(batch):
                self._waiting[future] = taker
            elif not future.done():
                future.set_result(None)

    def _shrink(self) -> None:
        limit = RETAINED if self.readers else _RETAINED_UNREAD
        while self._size > limit and len(self._batches) > 1:
            self._size -= self._batches.popleft().size


class Hub:
    """The channels of a ledger. A channel exists while a reader or a writer uses it."""

    def __init__(self, on_first_reader: Callable[[], None] = lambda: None) -> None:
        self._channels: dict[ThreadKey, Channel] = {}
        self._on_first_reader = on_first_reader
        self.readers = 0

    def open(self, key: ThreadKey, *, reader: bool = False) -> Channel:
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(key)
        channel.users += 1
        if reader:
            channel.readers += 1
            self.readers += 1
            if self.readers == 1:
                self._on_first_reader()
        return channel

    def close(self, channel: Channel, *, reader: bool = False) -> None:
        channel.users -= 1
        if reader:
            channel.readers -= 1
            self.readers -= 1
        if not channel.users and self._channels.get(channel.key) is channel:
            del self._channels[channel.key]

    def prepare(self, key: ThreadKey, life: str, batch: Batch) -> None:
        if channel := self._of_life(key, life):
            channel.prepare(batch)

    def publish(self, key: ThreadKey, life: str, batch: Batch) -> None:
        if channel := self._of_life(key, life):
            channel.publish(batch)

    def learn(self, key: ThreadKey, life: str, last: int) -> None:
        if channel := self._of_life(key, life):
            channel.learn(last)

    def erase(self, key: ThreadKey, life: str) -> None:
        """End the readers of that life of the thread; those of a later one are not concerned."""
        channel = self._channels.get(key)
        if channel is not None and channel.life in ("", life):
            del self._channels[key]
            channel.end()

    def _of_life(self, key: ThreadKey, life: str) -> Channel | None:
        channel = self._channels.get(key)
        if channel is not None and not channel.life:
            channel.life = life
        return channel if channel is not None and channel.life == life else None


class LiveTail:
    """A reader's place: from the channel when it can, from the store when it must."""

    def __init__(
        self, channel: Channel, after: int, read: Callable[[ThreadKey, str, int], Awaitable[list[Batch]]]
    ) -> None:
        self.position = after
        self._channel = channel
        self._read = read

    def ready(self) -> bool:
        return self._channel.gone or self._channel.last > self.position

    async def next(self, taker: Taker | None = None) -> list[Batch]:
        channel = self._channel
        while True:
            if channel.last <= self.position and not channel.gone:
                await channel.changed(taker)
                if taker is not None and channel.last <= self.position:
                    return []
            elif found := channel.after(self.position) or await self._from_store(channel.last):
                self.position = found[-1].last
                return found

    async def _from_store(self, known: int) -> list[Batch]:
        channel = self._channel
        if channel.gone:
            raise UnknownThread
        found = await self._read(channel.key, channel.life, self.position)
        if not found:
            # Retention dropped everything up to there; the next batch shows the gap.
            self.position = max(self.position, known)
        return found


@asynccontextmanager
async def live_tail(
    hub: Hub,
    key: ThreadKey,
    after: int,
    lookup: Callable[[ThreadKey], Awaitable[ThreadInfo | None]],
    read: Callable[[ThreadKey, str, int], Awaitable[list[Batch]]],
    epoch: str = "",
) -> AsyncGenerator[LiveTail, None]:
    """Subscribe first, look into the store second: what is committed in between comes by one way or both, and is handed out once.

    `read(key, life, after)` gives stored batches of that life of the thread and raises UnknownThread when it is over.
    """
    channel = hub.open(key, reader=True)
    try:
        if (not channel.life or channel.last <= after) and (info := await lookup(key)):
            hub.learn(key, info.epoch, info.last)
        if epoch and channel.life != epoch:
            raise UnknownThread
        yield LiveTail(channel, after, read)
    finally:
        hub.close(channel, reader=True)


class Bell:
    """Wakes those who wait for a thread to become free."""

    def __init__(self) -> None:
        self._waiting: dict[ThreadKey, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ring(self, key: ThreadKey) -> None:
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def ring_all(self) -> None:
        for key in self._waiting:
            self.ring(key)

    async def wait(self, key: ThreadKey, free: Callable[[], Awaitable[bool]], patience: float) -> None:
        """Until `free` says yes. It is asked after every ring, and every `patience` seconds: the dead do not ring."""
        loop = asyncio.get_running_loop()
        while True:
            future: asyncio.Future[None] = loop.create_future()
            waiting = self._waiting.setdefault(key, set())
            waiting.add(future)
            timer = loop.call_later(patience, _resolve, future)
            try:
                if await free():
                    return
                await future
            finally:
                timer.cancel()
                waiting.discard(future)
                if not waiting and self._waiting.get(key) is waiting:
                    del self._waiting[key]


def cut(batch: Batch, first: int, last: int | None = None) -> Batch:
    """The part of a batch from `first` to `last`; the batch itself when that is all of it."""
    end = batch.last if last is None else min(last, batch.last)
    if first <= batch.first and end == batch.last:
        return batch
    start = max(first, batch.first)
    lines = batch.lines[start - batch.first : end - batch.first + 1]
    return replace(batch, first=start, lines=lines, text=None, derived={}, size=0)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
