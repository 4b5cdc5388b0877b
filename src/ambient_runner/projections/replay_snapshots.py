"""Selection of the snapshots that a replay sends: the newest one, and those after the thread was restated. Pure.

Every run ends with a snapshot of all messages, so a replay that sent all of them would grow with the square of the runs. A client that
follows a stream has the messages already when a snapshot comes (`transcript.py`), unless the thread was restated since the one before: by a
correction, a rewind or a client's own history. Such a snapshot decides which messages the client keeps, and in which order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.records import RUNTIME
from ambient_runner.projections.private_entries import may_contain_correction
from ambient_runner.projections.thread_view import REWOUND, THREAD_OWNER
from ambient_runner.protocol.events import is_terminal_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import Batch

__all__ = ["ReplaySnapshots", "first_of_newest_ended_run"]


class ReplaySnapshots:
    """Decides for one reader, batch by batch, if the snapshots of a batch are sent."""

    def __init__(self, *, newest_run: int, is_restated: bool) -> None:
        """`newest_run` is the first entry of the newest run that has ended: its snapshot and all later ones are sent.

        If the thread `is_restated` before the stream, so is the first one.
        """
        self._newest_run = newest_run
        self._is_restated = is_restated
        """True if the thread was restated, and no snapshot was sent since."""
        self._next: Batch | None = None
        self._next_restates = False
        self._is_next_included = False

    def includes(self, batch: Batch) -> bool:
        """Return True if the snapshots of this batch are sent. It has to be the one after those that were passed to `advance`."""
        if batch is not self._next:
            self._read_next(batch)
        return self._is_next_included

    def advance(self, batch: Batch, *, has_snapshot: bool) -> None:
        """Go on to the batch after this one. `has_snapshot` is True if it contains a snapshot that is folded from the thread."""
        if batch.first < self._newest_run:
            if batch is not self._next:
                self._read_next(batch)
            # A restatement in the batch of a snapshot may follow it, so the next snapshot is sent too.
            self._is_restated = self._next_restates or (self._is_restated and not has_snapshot)
        self._next = None

    def _read_next(self, batch: Batch) -> None:
        """Decide on a batch. Its frames need the answer several times, so it is searched once, and not at all if it is sent anyway."""
        is_sent = batch.first >= self._newest_run
        self._next, self._next_restates = batch, not is_sent and _restates(batch)
        self._is_next_included = is_sent or self._is_restated or self._next_restates


def first_of_newest_ended_run(batches: Sequence[Batch]) -> int:
    """Return the first entry in these batches of the newest run that ends in them; 0 if none does."""
    ended = next((batch.run for batch in reversed(batches) if _ends_run(batch)), None)
    return next((batch.first for batch in batches if ended is not None and batch.run == ended), 0)


def _restates(batch: Batch) -> bool:
    """Return True if the thread's messages may change otherwise than by what the batch streams."""
    if batch.owner != RUNTIME:
        return (batch.owner, batch.kind) == (THREAD_OWNER, REWOUND)
    return batch.text is None and may_contain_correction(b"\n".join(batch.lines))


def _ends_run(batch: Batch) -> bool:
    return batch.owner == RUNTIME and batch.text is None and is_terminal_line(batch.lines[-1])
