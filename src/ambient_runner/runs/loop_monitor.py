"""Report agents that block the event loop: all streams of the server wait while they do.

A thread schedules a callback on the loop and waits for it. If the callback is late, the stack of the loop's thread shows which run is
executing. The hot path is not touched.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.runs.execution import consume_events

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from ambient_runner.runs.active import ActiveRun
    from ambient_runner.runs.run import Run

__all__ = ["report_blocking_agents"]

logger = logging.getLogger(__name__)

_THRESHOLD = 1.0
"""Seconds after which a blocked event loop is reported."""
_LONG_BLOCK = 30.0
"""Seconds after which a block is also reported while it lasts: it may never end."""


@contextmanager
def report_blocking_agents(threshold: float = _THRESHOLD) -> Generator[None]:
    """Log a warning for each agent that blocks the running event loop for longer than `threshold` seconds."""
    monitor = _LoopMonitor(asyncio.get_running_loop(), threshold)
    monitor.start()
    try:
        yield
    finally:
        monitor.stop()


class _LoopMonitor(threading.Thread):
    def __init__(self, loop: asyncio.AbstractEventLoop, threshold: float) -> None:
        super().__init__(name="ambient-loop-monitor", daemon=True)
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._threshold = threshold
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(self._threshold / 2):
            beat = threading.Event()
            started = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(beat.set)
            except RuntimeError:  # the loop is closed
                return
            if not beat.wait(self._threshold):
                self._follow_block(beat, started)

    def _follow_block(self, beat: threading.Event, started: float) -> None:
        """Wait for the end of a block and log its run. Code that is not an agent's is not reported."""
        run = None
        is_reported = False
        while not beat.is_set() and not self._stopped.is_set():
            run = run or self._executing_run()
            beat.wait(self._threshold / 4)
            seconds = time.monotonic() - started
            if run is not None and seconds > _LONG_BLOCK and not is_reported:
                is_reported = True
                _log_block("has blocked", run, seconds)
        if run is not None:
            _log_block("blocked", run, time.monotonic() - started)

    def _executing_run(self) -> Run | None:
        """Return the run whose agent the loop is executing now."""
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            if frame.f_code is consume_events.__code__:
                active: ActiveRun | None = frame.f_locals.get("active")
                return active.run if active is not None else None
            frame = frame.f_back
        return None


def _log_block(verb: str, run: Run, seconds: float) -> None:
    logger.warning(
        "Agent %s %s the server for %.1f s (run %s on thread %s). Run blocking code in a thread: await asyncio.to_thread(…), "
        "or make `run` a plain generator.",
        run.agent,
        verb,
        seconds,
        run.key,
        run.thread.id,
    )
