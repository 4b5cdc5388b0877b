"""The contract of every store: an append-only log of facts per thread, one writer at a time. Its data types are in `records.py`.

A Ledger is opened with `async with`. Writing needs a Writer, which is the lease: `acquire_lease` returns it, and every append
checks its fencing token in the appending transaction. The store assigns sequence numbers in that transaction, from 1, without gaps.
Readers use `tail`, which returns whole Batches: new ones from memory, older ones from the store.
This package knows bytes and keys. It does not know AG-UI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from ambient_runner.errors import ThreadBusy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence, Sized
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.records import (
        ArchivedFilter,
        Batch,
        ChangedThreads,
        Checkpoint,
        CheckpointUpdate,
        Encoded,
        Fact,
        IdempotencyClaim,
        IdempotencyRecord,
        RunInfo,
        ThreadInfo,
        ThreadKey,
        ThreadLabels,
        ThreadStatus,
    )

DeferredEncoder = Callable[[], "Encoded"]
"""Encodes events that their producer has accepted and not encoded yet. The producer passes it to `Writer.append_lazily`.

The Writer calls it back, on the event loop and exactly once, before it needs the lines: when it submits its buffer, before its next
`append` or `append_lazily`, in `finish_run`, and when it fails. The result is empty if the producer has encoded the events itself.
It must not raise and must not call the Writer; its lines must not contain a line break.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """The server's settings for every store. A later version may add fields."""

    lease: float = 10.0
    """Seconds a process may be silent before others take over its threads."""
    patience: float = 30.0
    """Seconds for which writers keep what is queued while the store cannot be written. After that they fail."""


OpenStore = Callable[[str, StoreSettings], "Ledger"]
"""Returns the Ledger of a URL, not opened yet. The object of an entry point in the group `ambient_runner.stores`, named after the scheme.

It raises ConfigError if the URL is not valid. It does no I/O: that begins with `async with`.
"""


class LeaseHeld(ThreadBusy):
    def __init__(self, run: str, claim: IdempotencyClaim | None) -> None:
        super().__init__()
        self.run = run
        """Key of the run that holds the lease; empty if the lease is free and others wait for it with earlier tickets."""
        self.claim = claim
        """The Idempotency-Key of the run that holds the lease."""


class Writer(Protocol):
    """The lease: the right to write one run on one thread. Hold it in `async with`; `finish_run` releases it, or leaving does.

    `append` never waits and never touches the disk: it queues. `flush` waits until everything queued so far is committed and
    published. `wait_for_capacity` waits while too much is queued (4,096 entries or 1 MiB).
    While the store cannot be written, commits are tried again for `StoreSettings.patience` seconds; `append` goes on queueing.
    After the lease is lost, every call raises LeaseLost; after a commit failed for good, its LedgerError. Queued entries are dropped
    then and the writer accepts no more, because the next line would follow a gap: release it, and recovery closes the run once the
    store works again.
    """

    run: str
    thread: ThreadKey
    epoch: str
    token: int
    last: int
    """The newest committed seq of the thread when the lease was acquired."""
    has_ended: bool
    """True if this run already had its terminal entry when the lease was acquired: nothing can be appended then."""

    @property
    def appended_count(self) -> int:
        """Number of lines appended through this writer so far, without those of `begin_run`."""
        ...

    @property
    def appended_bytes(self) -> int:
        """Number of bytes of these lines."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def begin_run(
        self, facts: Iterable[Fact], *, run_id: str, agent: str, claim: IdempotencyClaim | None, title: str = ""
    ) -> int:
        """Append the run's first facts in one transaction with the run's row, the thread's row and the key. Return the first seq.

        The thread's status becomes `running`; `title` becomes its title if it has none.
        Raises: AgentMismatch, IdempotencyConflict, LeaseLost, LedgerError.
        """
        ...

    def append(self, line: bytes) -> None:
        """Queue one encoded runtime event."""
        ...

    def append_lazily(self, encode: DeferredEncoder, pending: Sized = ()) -> None:
        """Queue runtime events that are not encoded yet: the Writer calls `encode` back once it needs their lines.

        The producer may add events to those `encode` will encode until it is called; then it registers it again. `pending` are these
        events: without them, the Writer has to encode them to see if the producer goes on.
        """
        ...

    def is_full(self) -> bool:
        """Return True if the caller should now await `wait_for_capacity`."""
        ...

    async def wait_for_capacity(self) -> None: ...

    async def flush(self) -> int:
        """Wait until everything appended is committed and published. Return the newest committed seq of this run."""
        ...

    async def finish_run(
        self, status: ThreadStatus = "finished", *, checkpoint: CheckpointUpdate | None = None
    ) -> None:
        """Flush, mark the run ended at its newest entry, set the thread's status and release the lease, all in one transaction.

        `checkpoint` becomes the newest one of the thread, in the same transaction. Raises: ValueError if it is ahead of what is committed.
        """
        ...

    async def wait_for_stop(self) -> str:
        """Wait until a client or server, in any process, requests that this run stops. Return the reason they named."""
        ...

    def watch_for_stop(self, on_stop: Callable[[str], None], on_failure: Callable[[LedgerError], None]) -> None:
        """Call `on_stop` with the reason once a stop is requested, or `on_failure` once this writer fails; at once if that has happened.

        As `wait_for_stop`, without a task that waits. Both must return quickly and must not raise. Leaving the lease ends the watch.
        """
        ...


class BatchSink(Protocol):
    """Receives batches synchronously, on publish. Both methods must return quickly and must not raise."""

    def prepare(self, batch: Batch) -> None:
        """Receive a batch that is being committed, to derive from it while the disk is busy. It may never be published."""
        ...

    def try_send(self, batch: Batch) -> bool:
        """Receive a published batch. A sink that consumes the batch after `Tail.position` moves the position to its end.

        Return True to keep waiting for more.
        """
        ...


class Tail(Protocol):
    """A reader's position in a thread. It ends when the thread is erased, or when retention overtakes it."""

    position: int
    """Seq of the last entry returned (or the cursor it began with)."""

    async def next_batches(self, sink: BatchSink | None = None, *, limit: int = 1 << 20) -> list[Batch]:
        """Return the next batches, sliced so that the first one starts at `position + 1`; about `limit` bytes at most. Wait while there is
        none. The caller owns the list: what it removes from it, it no longer keeps in memory.

        While it waits, `sink` receives each batch on publish. The result is empty when the sink consumed everything and returned False.

        Raises: UnknownThread if the thread was erased in the meantime; EntriesDropped if retention has dropped the entry after `position`,
        so that no reader passes over entries unnoticed; LedgerError.
        """
        ...

    def has_next(self) -> bool:
        """Return True if `next_batches` would return without waiting."""
        ...


class Ledger(Protocol):
    """A store. Every call takes the whole ThreadKey: another owner's thread does not exist."""

    url: str

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def acquire_lease(
        self, key: ThreadKey, run: str, *, claim: IdempotencyClaim | None = None, ticket: int | None = None
    ) -> Writer:
        """Return the lease of this thread for this run. A lease whose process died or let it expire is taken over, with a higher token.

        Requests that wait with a `queue_ticket` go first, in order: without a ticket, or with a later one, the caller is refused.
        Raises: LeaseHeld if another run holds it; LedgerError.
        """
        ...

    async def begin_thread(
        self,
        key: ThreadKey,
        run: str,
        facts: Sequence[Fact],
        *,
        epoch: str,
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str = "",
    ) -> Writer:
        """Create a thread with that epoch, acquire its lease and begin its first run: `acquire_lease` and `begin_run` in one transaction.

        Raises: ThreadExists; LeaseHeld, also if others wait in the thread's queue; IdempotencyConflict; LedgerError. Nothing is written
        then.
        """
        ...

    async def wait_released(self, key: ThreadKey, timeout: float, *, ticket: int | None = None) -> bool:
        """Wait until the lease may be free, in any process, and with a ticket until it is also first in the queue.

        Return False if `timeout` seconds passed first.
        """
        ...

    def queue_ticket(self, key: ThreadKey, *, depth: int) -> AbstractAsyncContextManager[int]:
        """Join the thread's queue, across processes, and get a ticket for `acquire_lease`. A dead process's tickets do not count.

        Raises: ThreadBusy if `depth` others already wait.
        """
        ...

    async def request_stop(self, key: ThreadKey, reason: str, *, run: str = "") -> bool:
        """Request that the active run (or only the run `run`) stops, in any process. Return False if none is active."""
        ...

    async def append_facts(
        self,
        key: ThreadKey,
        facts: Sequence[Fact],
        *,
        expect: int | None = None,
        labels: ThreadLabels | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> int:
        """Append facts that belong to no run, of one owner that is not `runtime`, to an existing thread. Return the last seq.

        With `expect`, append only if no run holds the lease and the newest entry is still that one. `labels` are written in the same
        transaction. So is `claim`, for facts that a client may send again, to any process.
        Raises: UnknownThread; ThreadBusy if a run is active, StaleCursor if there is a newer entry; IdempotencyConflict if the claim was
        used in the last 24 hours; ValueError for owner `runtime`.
        """
        ...

    async def get_thread(self, key: ThreadKey) -> ThreadInfo | None: ...

    async def list_threads(
        self,
        tenant: str,
        owner: str,
        *,
        limit: int = 100,
        before: str | None = None,
        agents: Collection[str] = (),
        statuses: Collection[ThreadStatus] = (),
        archived: ArchivedFilter = "without",
        search: str = "",
    ) -> list[ThreadInfo]:
        """Return the owner's threads, the newest change first; `before` is the `cursor` of the last one of the previous page.

        Only those of these agents and with these statuses, where any are given, and with `search` in their title or id, in any case.
        Raises: InvalidCursor, LedgerError.
        """
        ...

    async def list_changed_threads(
        self, tenant: str, owner: str, *, after: str | None, limit: int = 100
    ) -> ChangedThreads:
        """Return the owner's threads that have changed since a cursor, at most `limit`. Cheap if there are none: clients poll it.

        With None, return no thread and the cursor of now.
        Raises: InvalidCursor; StaleCursor if erasures since then are no longer known; LedgerError.
        """
        ...

    async def list_active_threads(self, tenant: str, owner: str) -> list[ThreadKey]:
        """Return the owner's threads whose lease a live process holds, also new ones that have no entry yet."""
        ...

    async def list_all_threads(self, *, limit: int = 100) -> list[ThreadInfo]:
        """Return the threads of all owners of all tenants, newest first. For operators, never for requests."""
        ...

    async def get_run(self, key: ThreadKey, run: str) -> RunInfo | None: ...

    async def list_runs(self, key: ThreadKey, *, limit: int = 100, before: int | None = None) -> list[RunInfo]:
        """Return the runs of the thread, newest first; with `before`, only those whose `first` is smaller."""
        ...

    async def find_run_at(self, key: ThreadKey, seq: int) -> RunInfo | None:
        """Return the newest run of the thread that began at or before `seq`."""
        ...

    async def find_idempotency_record(self, tenant: str, claim: IdempotencyClaim) -> IdempotencyRecord | None:
        """Return the run of the tenant that this Idempotency-Key was used for in the last 24 hours."""
        ...

    async def read_batches(
        self, key: ThreadKey, after: int, *, until: int | None = None, limit: int = 1 << 20, epoch: str = ""
    ) -> list[Batch]:
        """Return the batches after a seq, sliced to begin there and end at `until`: `limit` bytes at most, or one entry. Empty at the end.

        With `epoch`, only of the thread with that epoch. Raises: UnknownThread if that one was erased.
        """
        ...

    def tail(self, key: ThreadKey, after: int, *, epoch: str = "") -> AbstractAsyncContextManager[Tail]:
        """Open a live reader that begins after `after`; with `epoch`, only of the thread with that epoch.

        Other processes see it in `ThreadInfo.readers`, a moment later.
        Raises: UnknownThread if that one was erased.
        """
        ...

    async def list_abandoned_runs(self, *, limit: int = 100) -> list[RunInfo]:
        """Return runs without a terminal entry whose lease is free or expired. `acquire_lease(run.thread, run.key)` takes one over.

        At most `limit`, in random order: processes that recover at the same time should not all begin with the same run.
        """
        ...

    async def get_checkpoint(self, key: ThreadKey, at: int | None = None, *, epoch: str = "") -> Checkpoint | None:
        """Return the newest checkpoint at or before `at`; with `epoch`, only of the thread with that epoch.

        A thread has up to two: the newest that a run has written, and the one in place of the entries that were dropped.
        """
        ...

    async def list_checkpoint_parts(self, key: ThreadKey) -> list[int]:
        """Return the seqs of the parts of the thread's newest checkpoint, in order. Only the holder of the lease changes them."""
        ...

    async def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, *, epoch: str = "") -> None:
        """Store the checkpoint in place of the entries it covers and drop them. An earlier one than the last is not stored.

        With `epoch`, only of the thread with that epoch.
        Raises: UnknownThread, also if that one was erased; ValueError if the checkpoint is ahead of the thread.
        """
        ...

    async def erase_thread(self, key: ThreadKey) -> bool:
        """Erase the thread: entries, runs, checkpoints and keys' targets, so that no byte of it stays on disk; end its readers.

        A tombstone without content keeps used Idempotency-Keys answering "gone", and tells `list_changed_threads` of the erasure.
        Return False if there was no such thread.
        """
        ...

    def unavailable_reason(self) -> str | None:
        """Return why the store cannot be written now, in a sentence that any client may read; None if it can, as far as is known.

        Does no I/O: `GET /ready` asks it. A store that fails finds out by itself when it is well again.
        """
        ...
