"""The stored form of a ThreadView: a checkpoint of retention or of a run, and the versions of this program that can read it. Pure.

`thread_view.py` converts views; `checkpoint_parts.py` has the messages of a checkpoint that is written in parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.errors import LedgerError
from ambient_runner.projections.adapter_memory import RunMemory  # noqa: TC001  msgspec reads the annotations
from ambient_runner.projections.annotations import Annotations
from ambient_runner.projections.checkpoint_parts import StoredMessages, decode_messages
from ambient_runner.projections.open_interrupts import OpenInterrupt  # noqa: TC001  msgspec reads the annotations
from ambient_runner.projections.thread_fork import ThreadFork  # noqa: TC001  msgspec reads the annotations
from ambient_runner.projections.thread_status import RunStatus, run_status
from ambient_runner.protocol.events import Message, Terminal  # noqa: TC001  msgspec reads the annotations

if TYPE_CHECKING:
    from ambient_runner.ledger.records import CheckpointPart

__all__ = ["CHECKPOINT_VERSION", "RunSummary", "ViewCheckpoint", "decode_checkpoint", "decode_part"]

CHECKPOINT_VERSION = 1
_UNREADABLE = (
    "The checkpoint of this thread cannot be read by this version. Start the version that wrote it, or a newer one."
)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run and its end."""

    key: str
    run_id: str
    """The client's id, as in the frames."""
    terminal: Terminal | None = None
    trace_id: str = ""
    end: int = 0
    """The seq of its terminal event; 0 while it runs, and in checkpoints that do not have it."""
    started: int = 0
    """Time of the commit of its first event, in milliseconds since 1970; 0 in checkpoints that do not have it."""
    ended: int = 0
    """Time of the commit of its terminal event; 0 while it runs, and in checkpoints that do not have it."""

    @property
    def status(self) -> RunStatus:
        return run_status(self.terminal)


class ViewCheckpoint(msgspec.Struct, kw_only=True):
    """Everything of a view but its `seq` and the names of hidden state keys."""

    version: int
    messages: list[Message]
    state: Any
    failed: int
    seen: Any
    last_run: RunSummary | None
    interrupts: list[OpenInterrupt]
    pending_calls: dict[str, str]
    memories: tuple[RunMemory, ...] = ()
    anchor: str = ""
    removed_ids: list[str] = []
    withdrawn_ids: list[str] = []
    buffered_results: list[str] = []
    digest_key: str = ""
    client_tools: list[str] = []
    client_call_ids: list[str] = []
    calls_of_run: list[str] = []
    annotations: Annotations = msgspec.field(default_factory=Annotations)
    created: int = 0
    updated: int = 0
    fork: ThreadFork | None = None
    accepted_after: dict[str, int] = {}
    first_restated: int = -1
    """-1 in checkpoints that do not have it."""


def decode_checkpoint(body: bytes) -> ViewCheckpoint:
    """Return the checkpoint with this body. Raises: LedgerError if a newer version of this program wrote it."""
    try:
        saved = msgspec.json.decode(body, type=ViewCheckpoint)
    except msgspec.ValidationError as error:
        raise LedgerError(_UNREADABLE) from error
    if saved.version != CHECKPOINT_VERSION:
        raise LedgerError(_UNREADABLE)
    return saved


def decode_part(part: CheckpointPart) -> StoredMessages:
    """Return the messages of a part. Raises: LedgerError if a newer version of this program wrote it."""
    try:
        messages = tuple(decode_messages(part.body))
    except msgspec.ValidationError as error:
        raise LedgerError(_UNREADABLE) from error
    return StoredMessages(part.seq, messages, len(part.body))
