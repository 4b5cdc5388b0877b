"""The data of the ledger: thread keys, facts, batches, and what a store reports about threads, runs and keys.

The contract that reads and writes them is `base.py`. This package knows bytes and keys. It does not know AG-UI.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

IDEMPOTENCY_KEY_TTL_MS = 24 * 3600 * 1000
"""Milliseconds for which an Idempotency-Key is remembered."""

RUNTIME = "runtime"
"""Owner of a run's events. Only a Writer appends for it."""


ThreadStatus = Literal["running", "waiting", "finished", "failed", "stopped"]
"""State of a thread: of its last run, or `waiting` while interrupts or frontend tool calls are open."""

ArchivedFilter = Literal["without", "only", "with"]
"""Which threads a list contains: those that are not archived, only archived ones, or both."""


class ThreadKey(NamedTuple):
    """Key of a thread. A client's thread id is unique only for one owner of one tenant."""

    tenant: str
    owner: str
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """An entry to store. `body` is one line of JSON; for the owner `runtime` it is a whole AG-UI event and `kind` its type."""

    owner: str
    kind: str
    body: bytes


class JoinedText(msgspec.Struct, frozen=True, gc=False):
    """The joined text of consecutive deltas of one message. The encoder passes it along, so that no reader has to decode the lines."""

    message_id: str
    text: str

    def followed_by(self, more: JoinedText | None) -> JoinedText | None:
        """Return both as one; None if they are not of one message."""
        if more is None or more.message_id != self.message_id:
            return None
        return JoinedText(self.message_id, self.text + more.text)


def join_texts(texts: Sequence[JoinedText]) -> JoinedText:
    """Return consecutive texts of one message as one."""
    return texts[0] if len(texts) == 1 else JoinedText(texts[0].message_id, "".join([each.text for each in texts]))


class Encoded(NamedTuple):
    """Encoded runtime events, and what spares a fold from decoding them."""

    lines: list[bytes]
    text: JoinedText | None = None
    """Their joined text if all are deltas of one message."""
    events: Sequence[object] = ()
    """As `Batch.events`."""


class Batch(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """Consecutive entries of one thread and one owner, committed together. A Struct because every commit of every run creates one.

    `lines[i]` is the body of entry `first + i`. `kind` is empty for the owner `runtime`: there each line contains its own type.
    One Batch object serves all readers of a process, so values derived from it can be cached in `derived`, under any key.
    """

    first: int
    owner: str
    kind: str
    run: str
    """Key of the run that wrote it; empty for facts that belong to no run."""
    ts: int
    """Commit time in milliseconds since 1970."""
    lines: Sequence[bytes]
    text: JoinedText | None = None
    """The joined text of the lines, if it is known."""
    events: Sequence[object] = ()
    """What a fold takes in place of the lines, passed along by their producer: events, of which one may stand for several deltas of a
    message, and lines that were not decoded. Empty if they are not known, or not needed any more."""
    derived: dict[str, bytes] = {}
    last: int = 0
    size: int = 0
    """Bytes of all lines."""

    def __post_init__(self) -> None:
        self.last = self.first + len(self.lines) - 1
        self.size = self.size or sum(map(len, self.lines))


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadInfo:
    """A thread's row: everything the store can report without folding the entries."""

    key: ThreadKey
    agent: str
    epoch: str
    """Random tag, part of every cursor. A thread that is erased and created again has a new one."""
    created: int
    updated: int
    """Time of the last start or end of a run or fact outside of runs, in ms since 1970. Not unique: `cursor` is the thread's position."""
    first: int
    """The oldest entry that is retained."""
    last: int
    """The newest entry; 0 if there is none."""
    active: str = ""
    """Key of the run that holds the lease; empty if the thread is free."""
    queued: int = 0
    """Number of requests waiting for the lease, in all processes."""
    readers: int = 0
    """Number of processes that have live readers of the thread, without the one that holds the lease: that one knows its own."""
    title: str = ""
    archived: bool = False
    status: ThreadStatus = "finished"
    """Set at the start and end of a run and by facts that change it. A run whose process died is `running` until it is closed."""
    cursor: str = ""
    """Opaque position in the list of the owner's threads, by their last change. Only the store that made it can read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadLabels:
    """Changes of a thread's row, written in the transaction of the facts they follow from. None leaves a value as it is."""

    title: str | None = None
    archived: bool | None = None
    status: ThreadStatus | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedThreads:
    """The threads of an owner that have changed since a cursor."""

    threads: list[ThreadInfo]
    """Threads as they are now, the oldest change first; archived ones too."""
    erased: list[str]
    """Ids of erased threads, the oldest first. None of them is in `threads`."""
    cursor: str
    """The position to ask from next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """A run's row in the ledger."""

    key: str
    thread: ThreadKey
    run_id: str
    """The client's id: not unique, never a key."""
    first: int
    """Seq of its first entry."""
    last: int
    """Seq of its terminal entry; 0 while it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyClaim:
    """An Idempotency-Key as presented, or the id of facts that a client may send again.

    `scope` is a hash of (tenant, owner, agent, key), or of the thread and the id: they may be secrets. `digest` is one of the body.
    """

    scope: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyRecord:
    """The run an Idempotency-Key was used for. `run` is None if that run was erased; `digest` shows if it is the same request."""

    digest: str
    thread: ThreadKey
    run: RunInfo | None


class CheckpointPart(NamedTuple):
    """A part of a checkpoint that later ones may share. `seq` is that of the checkpoint it was written with."""

    seq: int
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The folded thread up to and including `seq`; earlier entries may have been dropped. Its bytes are opaque."""

    seq: int
    body: bytes
    parts: tuple[CheckpointPart, ...] = ()
    """The parts that precede the body, the oldest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointUpdate:
    """A checkpoint that a run writes: it begins with parts of the one before it, so that only what is new is written."""

    seq: int
    body: bytes
    kept_parts: tuple[int, ...] = ()
    """The seqs of the parts that it begins with. The other ones are dropped."""
    new_part: bytes = b""
    """The part that follows them; empty for none."""


def new_epoch() -> str:
    """Return a random epoch for a thread."""
    return secrets.token_urlsafe(9)
