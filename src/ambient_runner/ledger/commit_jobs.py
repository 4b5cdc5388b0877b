"""Jobs and appends that the event loop passes to a store's commit thread, and the outcomes it passes back. Shared by all stores.

`threaded_ledger.py` submits the work and settles the outcomes, on the loop. `commit_thread.py` is what a store implements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ambient_runner.ledger.buffered_writer import Append

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ambient_runner.errors import LedgerError, StoreUnusable
    from ambient_runner.ledger.commit_thread import WriteCommands
    from ambient_runner.ledger.records import Batch, ThreadKey

__all__ = [
    "CommitJob",
    "CommitOutcome",
    "CommitWork",
    "ExternalChanges",
    "GrantedLease",
    "PublishedBatch",
    "fail_work",
]


@dataclass(slots=True, eq=False)
class CommitJob:
    """Work for a transaction; the future receives its result once that is committed."""

    work: Callable[[WriteCommands], Any]
    future: asyncio.Future[Any]
    must_succeed: bool = False
    """True if it is retried with every following transaction after it failed; the caller gets its answer at once."""
    is_durable: bool = True
    """True if it must survive a power loss. Changes of leases need not: their processes would be gone too."""


CommitWork: TypeAlias = Append | CommitJob


class GrantedLease(NamedTuple):
    """A lease, as it was when it was acquired."""

    token: int
    epoch: str
    """The thread's epoch, also of a thread that does not exist yet."""
    last: int
    """The newest seq of the thread; 0 if it does not exist."""
    has_thread: bool
    """True if the thread exists."""
    has_begun: bool
    has_ended: bool


class PublishedBatch(NamedTuple):
    """A batch that readers receive once it is committed; None if the thread was erased."""

    key: ThreadKey
    epoch: str
    batch: Batch | None


@dataclass(slots=True)
class ExternalChanges:
    """Changes of other processes since the last poll."""

    grown: list[tuple[ThreadKey, str, int]] = field(default_factory=list["tuple[ThreadKey, str, int]"])
    """Threads with new entries: key, epoch and the newest seq."""
    erased: list[tuple[ThreadKey, str]] = field(default_factory=list["tuple[ThreadKey, str]"])
    stops: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Leases of this process whose runs shall stop: token and reason."""
    held_leases: set[int] = field(default_factory=set[int])
    """Tokens of the leases this process still holds."""


@dataclass(slots=True, eq=False)
class CommitOutcome:
    """The committed result of a transaction, for the loop."""

    changes: ExternalChanges | None = None
    unusable: StoreUnusable | None = None
    """Set if another program changed the file of the store: every reader and writer ends."""
    published: list[PublishedBatch] = field(default_factory=list[PublishedBatch])
    committed: list[tuple[Append, int]] = field(default_factory=list[tuple[Append, int]])
    """Appends, with the newest seq of their run."""
    refused: list[tuple[Append, LedgerError]] = field(default_factory=list["tuple[Append, LedgerError]"])
    answers: list[tuple[CommitJob, Any, BaseException | None]] = field(
        default_factory=list[tuple[CommitJob, Any, "BaseException | None"]]
    )


def fail_work(
    work: list[CommitWork], error: LedgerError, changes: ExternalChanges | None, *, keep_appends: bool
) -> tuple[CommitOutcome, list[CommitWork]]:
    """Return the outcome of a transaction that was rolled back, and the work to try again: jobs that must succeed, and kept appends."""
    outcome = CommitOutcome(changes=changes)
    held: list[CommitWork] = []
    for item in work:
        if isinstance(item, CommitJob):
            if item.must_succeed:
                held.append(item)
            outcome.answers.append((item, None, None if item.must_succeed else error))
        elif keep_appends:
            held.append(item)
        else:
            outcome.refused.append((item, error))
    return outcome, held
