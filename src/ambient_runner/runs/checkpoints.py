"""The checkpoints that runs write: a fold of a long thread starts at the newest one, so its cost does not grow with the thread's history.

A run after which the entries since the last checkpoint are many, or large, writes one in its last transaction. It is as of the entry
before that transaction, so it is never ahead of what is committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from ambient_runner.errors import LeaseLost, LedgerError, UnknownThread
from ambient_runner.runs.view_cache import ThreadEpoch

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Writer
    from ambient_runner.ledger.records import CheckpointUpdate
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.runs.view_cache import ViewCache

__all__ = ["CHECKPOINT_ENTRIES", "RunCheckpoint", "is_checkpoint_due"]

logger = logging.getLogger(__name__)

CHECKPOINT_ENTRIES = 2_000
"""Entries since the last checkpoint from which on a run writes one."""
_CHECKPOINT_BYTES = 512 << 10
"""Bytes of those entries from which on it does."""
_TIMEOUT = 3.0
"""Seconds that a run waits for its checkpoint. Without it the run ends all the same, and a later one writes it."""


def is_checkpoint_due(view: ThreadView, *, more_entries: int = 0, more_bytes: int = 0) -> bool:
    """Return True if a checkpoint is due once so many entries and bytes follow those of the view.

    It is not before they are as large as what a checkpoint writes, a large state for example: else most of the store would be checkpoints.
    """
    last = view.checkpoint
    entries = view.seq - (last.seq if last else 0) + more_entries
    size = view.folded_bytes + more_bytes
    return (entries >= CHECKPOINT_ENTRIES or size >= _CHECKPOINT_BYTES) and size >= (last.size if last else 0)


class RunCheckpoint:
    """The checkpoint of one run. `view` is the thread when the run began."""

    def __init__(self, views: ViewCache, writer: Writer, view: ThreadView) -> None:
        self._views = views
        self._writer = writer
        self._view = view

    async def prepare(self) -> CheckpointUpdate | None:
        """Return the checkpoint to end the run with; None if none is due, or if it cannot be made now. Commits what is queued."""
        writer = self._writer
        if not is_checkpoint_due(self._view, more_entries=writer.appended_count, more_bytes=writer.appended_bytes):
            return None
        with anyio.move_on_after(_TIMEOUT):
            try:
                seq = await writer.flush()
                return await self._views.make_checkpoint(ThreadEpoch(writer.thread, writer.epoch), seq)
            except (LeaseLost, UnknownThread):
                return None  # The end of the run fails for the same reason, and says so.
            except LedgerError:
                logger.warning(
                    "Run %s on thread %s ends without the checkpoint that is due; a later run writes it",
                    writer.run,
                    writer.thread.id,
                    exc_info=True,
                )
        return None
