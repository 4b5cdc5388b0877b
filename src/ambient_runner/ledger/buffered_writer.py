"""The Writer all stores share: it queues on the loop, hands over what was produced until the producer suspended, and counts what came back.

This is the hot path from event to disk: `append` is a list append and a few counters. A store supplies `Desk`: begin, submit, release.
A producer that does not pause is handed over in batches that start small, so that a run's first events are out at once, and grow. It goes
on meanwhile, up to 4,096 entries ahead of the disk, and then waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import anyio

from ambient_runner.errors import RunnerError
from ambient_runner.ledger.base import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.base import Encoded, Fact, KeyClaim, Text, ThreadKey

WINDOW = 4096
WINDOW_BYTES = 1 << 20
_FIRST_BATCH = 16
_LARGEST_BATCH = 256
_LINE_BREAK = ord("\n")  # as a number: looking for it costs a tenth


class Append(NamedTuple):
    """Lines of one writer on their way into the store; `ended` marks the run's end at the last of them."""

    writer: QueuedWriter
    lines: list[bytes]
    size: int
    """How many bytes that is."""
    text: Text | None
    """What they say together, where that is known."""
    ended: bool


class Desk(Protocol):
    """What a store does for a writer. Outcomes come back, on the loop, as `committed` or `failed`."""

    async def begin(
        self, writer: QueuedWriter, facts: list[Fact], run_id: str, agent: str, claim: KeyClaim | None
    ) -> int: ...
    def submit(self, appends: list[Append]) -> None: ...
    async def release(self, writer: QueuedWriter) -> None: ...


class Outbox:
    """Collects the writers that have something queued and hands it over once they pause, so that a burst makes few, large commits."""

    def __init__(self, submit: Callable[[list[Append]], None]) -> None:
        self._submit = submit
        self._dirty: list[QueuedWriter] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, writer: QueuedWriter) -> None:
        self._dirty.append(writer)
        if len(self._dirty) == 1:
            # Asked for once: asyncio looks for a fork each time, and that is a system call.
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self._look)

    def flush(self) -> None:
        """Hand everything over now: somebody waits for it."""
        dirty, self._dirty = self._dirty, []
        self._hand_over([writer.take() for writer in dirty])

    def _look(self) -> None:
        """Once per turn of the loop. A writer that has queued more since the last look is still producing, until it has a batch."""
        appends: list[Append] = []
        busy: list[QueuedWriter] = []
        for writer in self._dirty:
            if writer.has_paused():
                appends.append(writer.take())
            else:
                busy.append(writer)
        self._dirty = busy
        if busy and self._loop:
            self._loop.call_soon(self._look)
        self._hand_over(appends)

    def _hand_over(self, appends: list[Append]) -> None:
        """What came `later` may have been nothing after all."""
        some = [append for append in appends if append.lines or append.ended]
        if some:
            self._submit(some)


class QueuedWriter:
    """See `base.Writer`."""

    def __init__(
        self,
        desk: Desk,
        outbox: Outbox,
        *,
        thread: ThreadKey,
        run: str,
        epoch: str,
        token: int,
        last: int,
        begun: bool,
        ended: bool,
    ) -> None:
        self.thread = thread
        self.run = run
        self.epoch = epoch
        self.token = token
        self.last = last
        self.ended = ended
        self._desk = desk
        self._outbox = outbox
        self._begun = begun
        self._refusal = _first_refusal(begun, ended)
        self._lines: list[bytes] = []
        self._text: Text | None = None
        self._make: Callable[[], Encoded] | None = None
        self._dirty = False
        self._ended = False
        self._newest = 0
        self._queued = 0
        self._looked = 0
        self._done = 0
        self._bytes = 0
        self._size = 0
        self._batch = _FIRST_BATCH
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stop: str | None = None
        self._stop_waiting: set[asyncio.Future[str]] = set()

    @property
    def written(self) -> int:
        return self._queued

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outbox.flush()
        if self._refusal is None:
            self._refusal = RuntimeError("the lease was released")
        with anyio.CancelScope(shield=True):
            await self._desk.release(self)

    async def begin(self, facts: Iterable[Fact], *, run_id: str, agent: str, claim: KeyClaim | None) -> int:
        if self._begun or isinstance(self._refusal, RunnerError):
            raise again(self._refusal or RuntimeError("the run has begun already"))
        listed = list(facts)
        if not listed:
            raise ValueError("a run begins with at least one fact")
        for fact in listed:
            check_line(fact.body)
        first = await self._desk.begin(self, listed, run_id, agent, claim)
        self._begun = True
        self._newest = first + len(listed) - 1
        if isinstance(self._refusal, RuntimeError):
            self._refusal = None
        return first

    def append(self, line: bytes) -> None:
        if self._refusal is not None:
            raise again(self._refusal)
        if _LINE_BREAK in line:
            raise ValueError("a line has no line break")
        if self._make is not None:
            self._gather()
        self._lines.append(line)
        self._text = None
        self._queued += 1
        size = len(line)
        self._bytes += size
        self._size += size
        if not self._dirty:
            self._dirty = True
            self._looked = self._queued
            self._outbox.add(self)

    def later(self, make: Callable[[], Encoded]) -> None:
        if self._refusal is not None:
            raise again(self._refusal)
        if self._make is not None:
            self._gather()
        self._make = make
        if not self._dirty:
            self._dirty = True
            self._looked = self._queued + 1
            self._outbox.add(self)

    def full(self) -> bool:
        return self._queued - self._done >= WINDOW or self._bytes >= WINDOW_BYTES

    async def room(self) -> None:
        while self.full():
            await self._settled(behind=WINDOW // 2)

    async def flushed(self) -> int:
        await self._settled()
        return self._newest

    async def finish(self) -> None:
        if self._refusal is not None:
            raise again(self._refusal)
        self._ended = True
        self._gather()
        # The mark is one more thing to commit, so that `_settled` waits for it too.
        self._queued += 1
        if not self._dirty:
            self._dirty = True
            self._outbox.add(self)
        self._refusal = RuntimeError("the run has ended")
        await self._settled()

    async def stop_requested(self) -> str:
        if self._stop is not None:
            return self._stop
        if isinstance(self._refusal, RunnerError):
            raise again(self._refusal)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stop_waiting.add(future)
        try:
            return await future
        finally:
            self._stop_waiting.discard(future)

    def has_paused(self) -> bool:
        """For the outbox: whether nothing was queued since it was last asked, or what is there is worth a commit of its own."""
        self._gather()
        paused = self._queued == self._looked or len(self._lines) >= self._batch
        self._looked = self._queued
        return paused

    def take(self) -> Append:
        """For the outbox: what is queued, once."""
        self._gather()
        lines, self._lines = self._lines, []
        size, self._size = self._size, 0
        text, self._text = self._text, None
        if len(lines) >= self._batch:
            self._batch = min(_LARGEST_BATCH, self._batch * 4)
        ended, self._ended = self._ended, False
        self._dirty = False
        return Append(self, lines, size, text, ended)

    def committed(self, count: int, size: int, newest: int) -> None:
        """For the store: so many queued things, of so many bytes, are on disk and published."""
        self._done += count
        self._bytes -= size
        self._newest = max(self._newest, newest)
        if self._waiting:
            self._resolve()

    def failed(self, error: LedgerError) -> None:
        """For the store: what was queued is dropped and nothing more is taken. A hole in a run would be worse than its end."""
        if isinstance(self._refusal, RunnerError):
            return
        self._refusal = error
        self._gather()  # Whoever puts lines aside begins anew, and is refused.
        self._lines.clear()
        self._bytes = self._size = 0
        for _, future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()
        for future in self._stop_waiting:
            if not future.done():
                future.set_exception(again(error))

    def stop(self, reason: str) -> None:
        """For the store: someone asked this run to stop. The first reason stays."""
        if self._stop is not None:
            return
        self._stop = reason
        for future in self._stop_waiting:
            if not future.done():
                future.set_result(reason)

    def _gather(self) -> None:
        """Have the lines made that came `later`."""
        make, self._make = self._make, None
        if make is not None:
            lines, text = make()
            if not self._lines:
                self._text = text
            elif lines:
                self._text = self._text.followed_by(text) if self._text else None
            self._lines += lines
            self._queued += len(lines)
            size = sum(map(len, lines))
            self._bytes += size
            self._size += size

    async def _settled(self, behind: int = 0) -> None:
        """Until all that is queued is on disk, but for the last `behind`; all of it when that is too many bytes."""
        if self._dirty:
            self._outbox.flush()
        target = self._queued if self._bytes >= WINDOW_BYTES else self._queued - behind
        if self._done < target and not isinstance(self._refusal, RunnerError):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((target, future))
            await future
        if isinstance(self._refusal, RunnerError):
            raise again(self._refusal)

    def _resolve(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for target, future in self._waiting:
            if target > self._done:
                still.append((target, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still


def _first_refusal(begun: bool, ended: bool) -> RunnerError | RuntimeError | None:
    if ended:
        return RuntimeError("the run has ended")
    return None if begun else RuntimeError("begin the run first")


def check_note(facts: Sequence[Fact]) -> None:
    """Raises ValueError: a note is of one owner, and never a run's event."""
    if any(fact.owner == RUNTIME for fact in facts):
        raise ValueError("only a Writer appends for the runtime")
    if len({fact.owner for fact in facts}) > 1:
        raise ValueError("a note has one owner")
    for fact in facts:
        check_line(fact.body)


def same_batch(fact: Fact) -> tuple[str, str]:
    """Runtime events of all types share a batch; other owners' facts one per kind."""
    return (RUNTIME, "") if fact.owner == RUNTIME else (fact.owner, fact.kind)


def check_line(line: bytes) -> None:
    """Raises ValueError: a batch joins its lines with line breaks."""
    if _LINE_BREAK in line:
        raise ValueError("a line has no line break")


def again(error: RunnerError | RuntimeError) -> Exception:
    """A fresh error like this one: a stored one would collect a traceback each time it is raised."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
