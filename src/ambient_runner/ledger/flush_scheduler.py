"""Submission of what writers have buffered, once their producers pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.ledger.buffered_writer import Append, BufferedWriter

__all__ = ["FlushScheduler"]


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
            self._loop.call_soon(self._flush_paused_writers)

    def flush(self) -> None:
        """Submit everything now, because a caller waits for it."""
        dirty, self._dirty_writers = self._dirty_writers, []
        self._submit_nonempty([writer.take_queued() for writer in dirty])

    def _flush_paused_writers(self) -> None:
        """Run once per loop iteration. A writer that queued more since the last check is still producing, until it has a full batch."""
        appends: list[Append] = []
        busy: list[BufferedWriter] = []
        for writer in self._dirty_writers:
            if writer.has_paused():
                appends.append(writer.take_queued())
            else:
                busy.append(writer)
        self._dirty_writers = busy
        if busy and self._loop:
            self._loop.call_soon(self._flush_paused_writers)
        self._submit_nonempty(appends)

    def _submit_nonempty(self, appends: list[Append]) -> None:
        """Submit the appends that have lines: what was appended lazily may have turned out to be empty."""
        nonempty = [append for append in appends if append.lines or append.end_status is not None]
        if nonempty:
            self._submit(nonempty)
