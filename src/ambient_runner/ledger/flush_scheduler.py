"""Decides when the buffers of the writers are submitted: once their producers pause, or a batch is full or old.

It is on the hot path from event to disk, with `buffered_writer.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.ledger.buffered_writer import Append, BufferedWriter

MAX_BATCH_LINES = 1024
"""Lines up to which the batches of a producer that does not pause grow. Each costs the event loop and the commit thread 0.1 ms, besides
its lines."""
_MIN_SHARED_BATCH_LINES = 256
"""Lines that the batches of each producer may have at least if several do not pause: they share `MAX_BATCH_LINES`, as all are encoded in
one iteration of the event loop."""


class FlushScheduler:
    """Submits what writers have queued once they pause, so that a burst makes few, large commits."""

    def __init__(self, submit: Callable[[list[Append]], None]) -> None:
        self._submit = submit
        self._dirty_writers: list[BufferedWriter] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add_writer(self, writer: BufferedWriter) -> None:
        self._dirty_writers.append(writer)
        if len(self._dirty_writers) == 1:
            # Looked up once: asyncio checks for a fork each time, which is a system call.
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self._flush_ready_writers)

    def flush(self) -> None:
        """Submit everything now, because a caller waits for it."""
        dirty, self._dirty_writers = self._dirty_writers, []
        self._submit_nonempty([writer.take_queued() for writer in dirty])

    def _flush_ready_writers(self) -> None:
        """Run once per loop iteration. A writer that queued more since the last check is still producing, until it has a full batch."""
        dirty = self._dirty_writers
        if len(dirty) == 1:  # No lists for one writer: an agent that awaits after each event comes here for each.
            ready, busy = (dirty, []) if dirty[0].is_ready(MAX_BATCH_LINES) else ([], dirty)
        else:
            ready, busy = _divide_by_readiness(dirty)
        self._dirty_writers = busy
        if busy and self._loop:
            self._loop.call_soon(self._flush_ready_writers)
        if ready:
            self._submit_nonempty([writer.take_queued() for writer in ready])

    def _submit_nonempty(self, appends: list[Append]) -> None:
        """Submit the appends that have lines: what was appended lazily may have turned out to be empty."""
        nonempty = [append for append in appends if append.lines or append.end_status is not None]
        if nonempty:
            self._submit(nonempty)


def _divide_by_readiness(dirty: list[BufferedWriter]) -> tuple[list[BufferedWriter], list[BufferedWriter]]:
    """Return the writers whose buffers are to be submitted, and those that are still producing."""
    max_lines = max(_MIN_SHARED_BATCH_LINES, MAX_BATCH_LINES // max(1, len(dirty)))
    ready: list[BufferedWriter] = []
    busy: list[BufferedWriter] = []
    for writer in dirty:
        (ready if writer.is_ready(max_lines) else busy).append(writer)
    return ready, busy
