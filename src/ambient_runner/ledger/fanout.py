"""Fan-out of committed batches to the readers of this process. Loop-side only: nothing here is touched from another thread.

A thread that is read or written has a Channel: the newest batches, up to 1 MiB, and the newest committed seq.
Readers hold a position and no queue of their own, so a slow one costs nothing: batches that are no longer in the channel are
read from the store. Stores publish after their commit, never before.
Plain asyncio futures, one per waiting reader, woken once per publish. A reader may also pass a BatchSink that receives a batch during
`publish`, without waking its task: waking a task for a single event costs more than sending it. Many readers are served in several
iterations of the event loop (`reader_scheduler.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from ambient_runner.errors import EntriesDropped, UnknownThread, copy_error
from ambient_runner.ledger.batches import BATCH_OVERHEAD, join_text_batches, slice_batch
from ambient_runner.ledger.reader_scheduler import BYTES_PER_UNIT, WAKE_COST, ReaderScheduler
from ambient_runner.ledger.thread_damage import report_thread_damage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.base import BatchSink
    from ambient_runner.ledger.records import Batch, ThreadInfo, ThreadKey

    ReadBatches = Callable[[ThreadKey, str, int, int], Awaitable[list[Batch]]]

MAX_RETAINED_BYTES = 1 << 20
_NOT_RETAINED = "Entries after this position are no longer retained. Read on from the oldest entry that is."
_MAX_UNREAD_BYTES = 1 << 16
"""Bytes a channel retains while it has no reader: enough for the one that subscribes right after `begin_run`."""
_JOINED_BATCHES = 16
"""Number of short batches of text that a channel joins. A live run commits every delta: the garbage collector would scan them all."""
_SHORT_BATCH_LINES = 16
"""Lines from which on a batch is not joined."""


class Channel:
    """The newest batches of one thread of one epoch, and the readers that wait for more."""

    __slots__ = (
        "_batches",
        "_has_changed",
        "_is_scheduled",
        "_loop",
        "_newest",
        "_scheduler",
        "_short_texts",
        "_size",
        "_unserved_readers",
        "_waiting",
        "epoch",
        "failure",
        "is_current",
        "is_erased",
        "key",
        "last",
        "readers",
        "users",
    )

    def __init__(self, key: ThreadKey, scheduler: ReaderScheduler) -> None:
        self.key = key
        self._scheduler = scheduler
        self._loop: asyncio.AbstractEventLoop | None = None
        self.epoch = ""
        """The thread's epoch; empty until the thread is known to exist."""
        self.last = 0
        """The newest seq known to be committed."""
        self.is_current = False
        """True if a reader has queried `last` and some reader is open since: the store reports every later commit."""
        self.is_erased = False
        self.failure: RunnerError | None = None
        """Raised by readers once they have read what is retained."""
        self.users = 0
        self.readers = 0
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._short_texts = 0
        """Number of the newest batches that are short texts and not joined."""
        self._newest: Batch | None = None
        """The last batch as it was published: the one in `_batches` may be joined with those before it."""
        self._waiting: dict[asyncio.Future[None], LiveTail] = {}
        self._unserved_readers: list[asyncio.Future[None]] = []
        """The rest of a round of all waiting readers, the next one at the end."""
        self._has_changed = False
        """True if something has changed since the round began."""
        self._is_scheduled = False
        """True while the scheduler has readers of this channel to serve."""

    def prepare(self, batch: Batch) -> None:
        """Pass a batch that is being committed to the sinks that wait for it."""
        for tail in self._waiting.values():
            if tail.sink is not None and tail.position + 1 == batch.first:
                tail.sink.prepare(batch)

    def publish(self, batch: Batch) -> None:
        """Add a committed batch and serve the readers. After a gap (another process wrote in between) only what follows it is retained."""
        if batch.last <= self.last and self._batches and batch.last <= self._batches[-1].last:
            return
        if self._batches and batch.first != self._batches[-1].last + 1:
            self._batches.clear()
            self._size = self._short_texts = 0
        self._batches.append(batch)
        self._newest = batch
        self._size += batch.size + BATCH_OVERHEAD
        self._short_texts = self._short_texts + 1 if batch.text and len(batch.lines) < _SHORT_BATCH_LINES else 0
        if self._short_texts == _JOINED_BATCHES:
            self._join_short_texts()
        self._evict_batches()
        if batch.last > self.last:
            self.last = batch.last
            self._serve_readers()

    def update_last(self, last: int) -> None:
        """Record that the store has entries up to `last`, from any process, and wake the readers."""
        if last > self.last:
            self.last = last
            self._serve_readers()

    def mark_erased(self) -> None:
        self.is_erased = True
        self._batches.clear()
        self._newest = None
        self._serve_readers()

    def fail(self, error: RunnerError) -> None:
        self.failure = error
        self._serve_readers()

    def batches_after(self, position: int, limit: int = MAX_RETAINED_BYTES) -> list[Batch]:
        """Return the retained batches from `position + 1` on, until they have `limit` bytes.

        All but the first are whole, because readers share them. Empty if there is none or the first one needed was evicted.
        """
        found: list[Batch] = []
        for batch in reversed(self._batches):
            if batch.last <= position:
                break
            found.append(batch)
        if not found or found[-1].first > position + 1:
            return []
        found.reverse()
        found[0] = slice_batch(found[0], position + 1)
        sizes = accumulate(batch.size + BATCH_OVERHEAD for batch in found)
        return found[: sum(size < limit for size in sizes) + 1]

    def has_after(self, position: int) -> bool:
        """Return True if a reader at this position has something to read, or the reason why nothing follows."""
        return self.last > position or self.is_erased or self.failure is not None

    async def wait_for_change(self, tail: LiveTail) -> None:
        """Wait for the next batch or the erasure of the thread; if the tail has a sink, only for what that does not consume."""
        self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = tail
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def _serve_readers(self) -> None:
        """Serve the waiting readers, some of them now. A round that is under way is followed by another one."""
        self._has_changed = True
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.serve(self)

    def serve_next(self) -> int:
        """Serve the next reader. See `WaitingReaders`."""
        while self._unserved_readers or self._has_changed:
            if not self._unserved_readers:
                self._has_changed = False
                self._unserved_readers = list(reversed(self._waiting))
            while self._unserved_readers:
                future = self._unserved_readers.pop()
                if tail := self._waiting.get(future):  # A reader that is cancelled meanwhile removes itself.
                    return self._serve_reader(future, tail)
        self._is_scheduled = False
        return 0

    def _serve_reader(self, future: asyncio.Future[None], tail: LiveTail) -> int:
        """Pass its sink what follows a reader's position, and wake the reader if something is left. Return the cost."""
        size, sink, is_consumed = 0, tail.sink, True
        if sink is not None:
            for batch in self._batches_to_pass(tail):
                size += batch.size
                is_consumed = sink.try_send(batch)
                if not is_consumed:
                    break
        cost = 1 + size // BYTES_PER_UNIT
        if is_consumed and not self.has_after(tail.position):
            return cost
        del self._waiting[future]
        if not future.done():
            future.set_result(None)
        return cost + WAKE_COST

    def _batches_to_pass(self, tail: LiveTail) -> Sequence[Batch]:
        """Return the retained batches after a reader's position. Nearly always that is the newest one as it was published."""
        if self._newest is not None and self._newest.first == tail.position + 1:
            return (self._newest,)
        return self.batches_after(tail.position)

    def _join_short_texts(self) -> None:
        self._short_texts = 0
        if len(self._batches) >= _JOINED_BATCHES:  # Else some of them were evicted.
            newest = [self._batches.pop() for _ in range(_JOINED_BATCHES)][::-1]
            joined = join_text_batches(newest)
            self._batches.extend((joined,) if joined else newest)
            self._size -= BATCH_OVERHEAD * (_JOINED_BATCHES - 1) if joined else 0

    def _evict_batches(self) -> None:
        limit = MAX_RETAINED_BYTES if self.readers else _MAX_UNREAD_BYTES
        while self._size > limit and len(self._batches) > 1:
            self._size -= self._batches.popleft().size + BATCH_OVERHEAD


class ChannelRegistry:
    """The channels of a ledger. A channel exists while a reader or a writer uses it."""

    def __init__(
        self,
        on_first_reader: Callable[[], None] = lambda: None,
        on_last_reader: Callable[[], None] = lambda: None,
        on_readers_changed: Callable[[ThreadKey], None] = lambda key: None,
    ) -> None:
        """`on_first_reader` and `on_last_reader` are called when the first reader of any thread opens and the last one closes.

        `on_readers_changed` is called for the first and the last of each thread.
        """
        self._channels: dict[ThreadKey, Channel] = {}
        self._scheduler = ReaderScheduler()
        self._on_first_reader = on_first_reader
        self._on_last_reader = on_last_reader
        self._on_readers_changed = on_readers_changed
        self.readers = 0

    def open_channel(self, key: ThreadKey, *, reader: bool = False) -> Channel:
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(key, self._scheduler)
        channel.users += 1
        if reader:
            channel.readers += 1
            self.readers += 1
            if self.readers == 1:
                self._on_first_reader()
            if channel.readers == 1:
                self._on_readers_changed(key)
        return channel

    def close_channel(self, channel: Channel, *, reader: bool = False) -> None:
        channel.users -= 1
        if reader:
            channel.readers -= 1
            self.readers -= 1
        if not channel.users and self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
        if reader and not channel.readers:
            channel.is_current = False
            self._on_readers_changed(channel.key)
        if reader and not self.readers:
            self._on_last_reader()

    def has_readers(self, key: ThreadKey) -> bool:
        channel = self._channels.get(key)
        return channel is not None and channel.readers > 0

    def has_writer(self, key: ThreadKey) -> bool:
        channel = self._channels.get(key)
        return channel is not None and channel.users > channel.readers

    def prepare(self, key: ThreadKey, epoch: str, batch: Batch) -> None:
        if channel := self._channel_of_epoch(key, epoch):
            channel.prepare(batch)

    def publish(self, key: ThreadKey, epoch: str, batch: Batch) -> None:
        if channel := self._channel_of_epoch(key, epoch):
            channel.publish(batch)

    def update_last(self, key: ThreadKey, epoch: str, last: int) -> None:
        if channel := self._channel_of_epoch(key, epoch):
            channel.update_last(last)

    def end_readers(self, key: ThreadKey, epoch: str) -> None:
        """End the readers of the thread with that epoch, not those of a thread created later under the same key."""
        channel = self._channels.get(key)
        if channel is not None and channel.epoch in ("", epoch):
            del self._channels[key]
            channel.mark_erased()

    def fail_thread(self, key: ThreadKey, epoch: str, error: RunnerError) -> None:
        """End the readers of one thread with that error."""
        if channel := self._channel_of_epoch(key, epoch):
            del self._channels[key]
            channel.fail(error)

    def fail_readers(self, error: RunnerError) -> None:
        """End all readers with that error."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.fail(error)

    def _channel_of_epoch(self, key: ThreadKey, epoch: str) -> Channel | None:
        channel = self._channels.get(key)
        if channel is not None and not channel.epoch:
            channel.epoch = epoch
        return channel if channel is not None and channel.epoch == epoch else None


class LiveTail:
    """A reader's position. It reads from the channel, and from the store if the channel has evicted the batch.

    It is open in `async with`. It subscribes before it queries the store, so that no commit in between is missed; each entry is returned
    once. A class with slots: as two generators it would cost an idle stream 1 KB more.
    """

    __slots__ = ("_channel", "_channels", "_epoch", "_key", "_lookup", "_read", "position", "sink")

    def __init__(
        self,
        channels: ChannelRegistry,
        key: ThreadKey,
        after: int,
        lookup: Callable[[ThreadKey], Awaitable[ThreadInfo | None]],
        read: ReadBatches,
        epoch: str = "",
    ) -> None:
        """`read(key, epoch, after, limit)` returns stored batches of the thread with that epoch; UnknownThread if it was erased."""
        self.position = after
        self.sink: BatchSink | None = None
        """Receives batches while the reader waits."""
        self._channels = channels
        self._key = key
        self._lookup = lookup
        self._read = read
        self._epoch = epoch

    async def __aenter__(self) -> Self:
        self._channel = channel = self._channels.open_channel(self._key, reader=True)
        try:
            if not channel.is_current and (not channel.epoch or channel.last <= self.position):
                await self._update_channel()
            if self._epoch and channel.epoch != self._epoch:
                raise UnknownThread
        except BaseException:
            self._channels.close_channel(channel, reader=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channels.close_channel(self._channel, reader=True)

    async def _update_channel(self) -> None:
        """Query the thread's newest seq."""
        if info := await self._lookup(self._key):
            self._channels.update_last(self._key, info.epoch, info.last)
            self._channel.is_current = self._channel.epoch == info.epoch

    def has_next(self) -> bool:
        return self._channel.has_after(self.position)

    async def next_batches(self, sink: BatchSink | None = None, *, limit: int = MAX_RETAINED_BYTES) -> list[Batch]:
        channel, self.sink = self._channel, sink
        while True:
            if not self.has_next():
                await channel.wait_for_change(self)
                if sink is not None and channel.last <= self.position:
                    return []
            elif found := channel.batches_after(self.position, limit) or await self._read_from_store(limit):
                self.position = found[-1].last
                return found

    async def _read_from_store(self, limit: int) -> list[Batch]:
        """Return the stored batches after the position, at least one. Raises: as `Tail.next_batches`."""
        channel = self._channel
        if channel.is_erased:
            raise UnknownThread
        if channel.failure is not None:
            raise copy_error(channel.failure)
        found = await self._read(channel.key, channel.epoch, self.position, limit)
        if not found or found[0].first != self.position + 1:
            raise await self._explain_missing_entry(self.position + 1)
        return found

    async def _explain_missing_entry(self, seq: int) -> RunnerError:
        """Return why an entry that was committed cannot be read: its thread was erased, retention has dropped it, or the store lost it."""
        info = await self._lookup(self._key)
        if info is None or info.epoch != self._channel.epoch:
            return UnknownThread()
        if info.first > seq:
            return EntriesDropped(_NOT_RETAINED)
        return report_thread_damage(self._key, f"entry {seq} is missing", agent=info.agent)
