"""The contract every store keeps: an append-only log of facts per thread, one writer at a time.

A Ledger is opened with `async with`. Writing needs a Writer, which is the lease: it is got by `acquire`, and every append
checks its fencing token in the appending transaction. Sequence numbers are given by the store in that transaction, from 1, without holes.
Readers use `tail`, which hands out whole Batches: live ones from memory, late or slow ones from the store.
This room knows bytes and keys. It does not know AG-UI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import msgspec

from ambient_runner.errors import ThreadBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

KEY_AGE = 24 * 3600 * 1000
"""Milliseconds an Idempotency-Key is kept."""

RUNTIME = "runtime"
"""The owner of a run's events. Only a Writer appends for it."""


class ThreadKey(NamedTuple):
    """Which thread: a client's thread id is only unique for one owner of one tenant."""

    tenant: str
    owner: str
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something to be stored. `body` is one line of JSON; for the owner `runtime` it is a whole AG-UI event and `kind` its type."""

    owner: str
    kind: str
    body: bytes


class Text(NamedTuple):
    """What lines say together that are all pieces of one text. Whoever made them knows it, so nobody has to read them for it."""

    message_id: str
    text: str

    def followed_by(self, more: Text | None) -> Text | None:
        """The two as one; None when they are not of one message."""
        if more is None or more.message_id != self.message_id:
            return None
        return Text(self.message_id, self.text + more.text)


class Encoded(NamedTuple):
    """Encoded runtime events, and what they say if they are one text."""

    lines: list[bytes]
    text: Text | None = None


class Batch(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """Consecutive entries of one thread and one owner, committed together. A Struct because it is made for every commit of every run.

    `lines[i]` is the body of entry `first + i`. `kind` is empty for the owner `runtime`: there each line says its own type.
    One Batch object serves all readers of a process, so what is derived from it can be cached in `derived`, under any key.
    """

    first: int
    owner: str
    kind: str
    run: str
    """Key of the run that wrote it; empty for a note."""
    ts: int
    """Milliseconds since 1970 when it was committed."""
    lines: Sequence[bytes]
    text: Text | None = None
    """What the lines say together, where that is known."""
    derived: dict[str, bytes] = {}
    last: int = 0
    size: int = 0
    """Bytes of all lines."""

    def __post_init__(self) -> None:
        self.last = self.first + len(self.lines) - 1
        self.size = self.size or sum(map(len, self.lines))


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadInfo:
    """What is known of a thread without folding it."""

    key: ThreadKey
    agent: str
    epoch: str
    """Random tag of this life of the thread: part of every cursor, new after an erasure."""
    created: int
    updated: int
    """When a run last began or ended or a note was made, in ms since 1970; made unique per owner, so that it serves as a cursor."""
    first: int
    """The oldest entry that is retained."""
    last: int
    """The newest entry; 0 when there is none."""
    active: str = ""
    """Key of the run that holds the lease; empty when the thread is free."""
    queued: int = 0
    """Requests waiting for the lease, in all processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """A run as the ledger knows it."""

    key: str
    thread: ThreadKey
    run_id: str
    """The client's id: not unique, never a key."""
    first: int
    """Seq of its first entry."""
    last: int
    """Seq of its terminal entry; 0 while it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyClaim:
    """An Idempotency-Key as presented: `scope` is (actor, agent, key) in one string, `digest` a hash of the body."""

    scope: str
    digest: str


class Held(ThreadBusy):
    def __init__(self, run: str, claim: KeyClaim | None) -> None:
        super().__init__()
        self.run = run
        """Key of the run that holds the lease; empty when only older tickets stand before the caller."""
        self.claim = claim
        """The Idempotency-Key the holder came with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyUse:
    """What a key was used for. `run` is None when that run was erased, `digest` tells whether it is the same request."""

    digest: str
    thread: ThreadKey
    run: RunInfo | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The folded thread up to and including `seq`; what came before may have been dropped. `body` is opaque JSON."""

    seq: int
    body: bytes


class Writer(Protocol):
    """The right to write one run on one thread. Hold it in `async with`; leaving releases the lease.

    `append` never waits and never touches the disk: it queues. `flushed` waits until everything queued so far is committed and
    published. `room` waits while too much is queued (4,096 entries or 1 MiB).
    After the lease is lost, everything raises LeaseLost; after a commit failed, its LedgerError. What was queued is dropped then and the
    writer takes nothing more, for the next line would follow a hole: release it, and recovery closes the run when the store is well.
    """

    run: str
    thread: ThreadKey
    epoch: str
    token: int
    last: int
    """The newest seq of the thread known to be committed when the lease was got."""
    ended: bool
    """Whether this run had its terminal entry already when the lease was got: nothing can be appended then."""

    @property
    def written(self) -> int:
        """How many events were queued through this writer."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def begin(self, facts: Iterable[Fact], *, run_id: str, agent: str, claim: KeyClaim | None) -> int:
        """Append the run's first facts in one transaction with the run's record, the thread's row and the key. Gives the first seq.

        Raises: OtherAgent, KeyReused, LeaseLost, LedgerError.
        """
        ...

    def append(self, line: bytes) -> None:
        """Queue one encoded runtime event."""
        ...

    def later(self, make: Callable[[], Encoded]) -> None:
        """Queue encoded runtime events that nobody has made yet: `make` gives them, soon and once.

        It may not raise, and its lines have no line break.
        """
        ...

    def full(self) -> bool:
        """Whether the caller should now wait for `room`."""
        ...

    async def room(self) -> None: ...

    async def flushed(self) -> int:
        """Wait until everything appended is committed and published; gives the newest committed seq of this run."""
        ...

    async def finish(self) -> None:
        """Flush, and mark the run ended at its newest entry, in the transaction that writes it."""
        ...

    async def stop_requested(self) -> str:
        """Wait until someone, in any process, asks this run to stop; gives the reason they named."""
        ...


class Taker(Protocol):
    """A reader that takes batches where they are published. Both must be quick, and must not raise."""

    def prepare(self, batch: Batch) -> None:
        """The batch is being written: what it needs may be derived from it now, while the disk is busy. It may also never come."""
        ...

    def take(self, batch: Batch) -> bool:
        """The batch has been published. One that follows `Tail.position` it may take, by moving that behind it.

        True means: wait for more.
        """
        ...


class Tail(Protocol):
    """A reader's place in a thread. `async for` over it never ends by itself, except when the thread is erased."""

    position: int
    """Seq of the last entry handed out (or the cursor it began with)."""

    async def next(self, taker: Taker | None = None) -> list[Batch]:
        """The next batches, never empty, cut so that the first starts at `position + 1`. Waits when there is none.

        A first batch that starts later shows that retention dropped what was between.
        While it waits, `taker` gets each batch that is published, where it is published. When it has taken everything and gives False,
        the answer is empty.

        Raises: UnknownThread when the thread was erased meanwhile; LedgerError.
        """
        ...

    def ready(self) -> bool:
        """Whether `next` would answer without waiting."""
        ...


class Ledger(Protocol):
    """A store. Every call takes the whole ThreadKey: another owner's thread does not exist."""

    url: str

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def acquire(
        self, key: ThreadKey, run: str, *, claim: KeyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        """The lease of this thread for this run. A lease whose owner is dead or past its time is taken over, with a higher token.

        Those who wait in `queueing` go first, in order: without a ticket, or with a later one, the caller is refused while they wait.
        Raises: Held when another run holds it; LedgerError.
        """
        ...

    async def released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        """Wait until the lease may be free, in any process, and with a ticket until it is also first in line.

        False when `timeout` seconds passed first.
        """
        ...

    def queueing(self, key: ThreadKey, *, depth: int) -> AbstractAsyncContextManager[int]:
        """Wait in line for the thread, across processes; gives a ticket for `acquire`. A dead process's tickets do not count.

        Raises: ThreadBusy when `depth` others wait already.
        """
        ...

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        """Ask the active run (or only that one) to stop, in whichever process it is; False when none is active."""
        ...

    async def note(self, key: ThreadKey, facts: Sequence[Fact], *, expect: int | None = None) -> int:
        """Append facts that belong to no run, of one owner that is not `runtime`, to an existing thread; gives the last seq.

        With `expect`, only if no run holds the lease and the newest entry is still that one.
        Raises: UnknownThread; ThreadBusy when a run is active, StaleCursor when there is a newer entry; ValueError for owner `runtime`.
        """
        ...

    async def thread(self, key: ThreadKey) -> ThreadInfo | None: ...

    async def threads(
        self, tenant: str, owner: str, *, limit: int = 100, before: int | None = None
    ) -> list[ThreadInfo]:
        """Newest first; `before` is the `updated` of the last one seen."""
        ...

    async def run(self, key: ThreadKey, run: str) -> RunInfo | None: ...

    async def run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        """The newest run of the thread that began at or before `seq`."""
        ...

    async def key_use(self, claim: KeyClaim) -> KeyUse | None:
        """What this Idempotency-Key was used for in the last 24 hours."""
        ...

    async def read(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        """Stored batches after a seq, cut to begin there and end at `until`; about `limit` bytes at most; empty at the end.

        With `epoch`, only of that life of the thread. Raises: UnknownThread when that one is over.
        """
        ...

    def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AbstractAsyncContextManager[Tail]:
        """A live reader that begins after `after`; with `epoch`, only of that life of the thread.

        Raises: UnknownThread when that one is over.
        """
        ...

    async def abandoned(self) -> list[RunInfo]:
        """Runs without a terminal entry whose lease is free or expired. `acquire(run.thread, run.key)` takes one over."""
        ...

    async def checkpoint(self, key: ThreadKey, at: int | None = None) -> Checkpoint | None:
        """The newest checkpoint at or before `at`."""
        ...

    async def trim(self, key: ThreadKey, checkpoint: Checkpoint) -> None:
        """Store the checkpoint in place of the one before, and drop the entries it covers.

        Raises: UnknownThread; ValueError when it is ahead of the thread.
        """
        ...

    async def erase(self, key: ThreadKey) -> bool:
        """Forget the thread: entries, runs, checkpoints and keys' targets, so that no byte of it stays on disk; end its readers.

        A tombstone without content keeps used Idempotency-Keys answering "gone". False when there was no such thread.
        """
        ...
