"""The writing side of a store that derives from `ThreadedLedger`: a commit thread, and the commands it runs in its transactions.

The thread commits everything queued since its last commit in one transaction, and passes the outcome to the loop. It also renews the
leases of its process and learns of the changes of others, so that a blocked event loop loses no lease.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ambient_runner.ledger.buffered_writer import Append
from ambient_runner.ledger.commit_jobs import CommitJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ambient_runner.errors import RunnerError
    from ambient_runner.ledger.commit_jobs import CommitOutcome, CommitWork, GrantedLease, PublishedBatch
    from ambient_runner.ledger.records import Checkpoint, Fact, IdempotencyClaim, ThreadKey, ThreadLabels

__all__ = ["CommitCallbacks", "CommitQueue", "CommitThread", "WriteCommands", "group_work"]


class WriteCommands(Protocol):
    """The commands of a store, each inside a write transaction. `base.Ledger` and `base.Writer` say what they do and raise.

    The errors they raise roll back only what the command itself has written.
    """

    def acquire_lease(
        self, key: ThreadKey, run: str, claim: IdempotencyClaim | None, ticket: int | None
    ) -> GrantedLease: ...
    def begin_thread(
        self,
        key: ThreadKey,
        run: str,
        facts: Sequence[Fact],
        epoch: str,
        run_id: str,
        agent: str,
        claim: IdempotencyClaim | None,
        title: str,
    ) -> GrantedLease: ...
    def begin_run(
        self, token: int, facts: Sequence[Fact], run_id: str, agent: str, claim: IdempotencyClaim | None, title: str
    ) -> int: ...
    def release_lease(self, token: int) -> None: ...
    def join_queue(self, key: ThreadKey, depth: int) -> int: ...
    def leave_queue(self, ticket: int) -> None: ...
    def add_reader(self, key: ThreadKey) -> None: ...
    def remove_reader(self, key: ThreadKey) -> None: ...
    def request_stop(self, key: ThreadKey, reason: str, run: str) -> int | None:
        """Return the token of the lease that was asked to stop; None if no live one matches."""
        ...

    def append_facts(
        self,
        key: ThreadKey,
        facts: Sequence[Fact],
        expect: int | None,
        labels: ThreadLabels | None,
        claim: IdempotencyClaim | None,
    ) -> int: ...
    def trim_thread(self, key: ThreadKey, checkpoint: Checkpoint, epoch: str) -> None: ...
    def erase_thread(self, key: ThreadKey) -> bool: ...


class CommitCallbacks(NamedTuple):
    """Callbacks of a commit thread. Each returns at once: the loop does the rest."""

    on_opened: Callable[[RunnerError | None], None]
    """Called once, when the store is open, or with the reason why it cannot be opened. The thread ends then."""
    on_uncommitted: Callable[[list[PublishedBatch]], None]
    """May be called with large batches before their commit, so that readers prepare them while the disk is busy."""
    on_outcome: Callable[[CommitOutcome], None]
    """Called after every transaction, and for changes of other processes."""


class CommitThread(Protocol):
    """The only thread of a process that writes to its store."""

    is_polling: bool
    """Set by the loop: True while a reader or waiter there needs changes of other processes."""
    is_paused: bool
    """True if it only commits, without renewing leases or polling: how other processes see a suspended one."""

    def start(self) -> None: ...
    def join(self) -> None: ...
    def is_alive(self) -> bool: ...
    def submit(self, work: list[Append] | CommitJob) -> None: ...
    def wake(self) -> None:
        """Poll at once: a reader began to wait."""
        ...

    def close(self) -> None:
        """Commit what is queued, release every lease and ticket, end the thread."""
        ...


class CommitQueue:
    """The work that the loop has submitted and the commit thread has not taken, and the work of failed transactions."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[list[Append] | CommitJob | None] = SimpleQueue()
        self.held: list[CommitWork] = []
        """Work of failed transactions, in its order. It goes before what is queued."""

    def submit(self, work: list[Append] | CommitJob) -> None:
        self._queue.put(work)

    def wake(self) -> None:
        """Let `wait_for_work` return."""
        self._queue.put(None)

    def is_empty(self) -> bool:
        return self._queue.empty()

    def wait_for_work(self, timeout: float) -> list[CommitWork]:
        """Return everything that is queued; wait until there is something, or until `timeout` seconds have passed."""
        try:
            first = self._queue.get(timeout=timeout)
        except Empty:
            return []
        return [*_unpack_item(first), *self.take_queued()]

    def take_queued(self) -> list[CommitWork]:
        """Return everything that is queued, without waiting."""
        work: list[CommitWork] = []
        try:
            while True:
                work.extend(_unpack_item(self._queue.get_nowait()))
        except Empty:
            return work

    def take_held(self) -> list[CommitWork]:
        held, self.held = self.held, []
        return held


def group_work(work: list[CommitWork]) -> Iterator[CommitJob | list[Append]]:
    """Yield the jobs, and the appends between them, in order. Appends of one writer are merged."""
    pending: dict[int, Append] = {}
    for item in work:
        if isinstance(item, CommitJob):
            if pending:
                yield list(pending.values())
                pending = {}
            yield item
        elif earlier := pending.get(token := item.writer.token):
            pending[token] = _merge_appends(earlier, item)
        else:
            pending[token] = item
    if pending:
        yield list(pending.values())


def _unpack_item(item: list[Append] | CommitJob | None) -> Sequence[CommitWork]:
    if isinstance(item, CommitJob):
        return (item,)
    return item or ()


def _merge_appends(earlier: Append, later: Append) -> Append:
    return Append(
        earlier.writer,
        earlier.lines + later.lines,
        earlier.size + later.size,
        earlier.text.followed_by(later.text) if earlier.text else None,
        earlier.events + later.events,
        earlier.end_status or later.end_status,
        earlier.checkpoint or later.checkpoint,
    )
