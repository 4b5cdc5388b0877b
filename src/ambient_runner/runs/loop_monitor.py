"""Report agents that block the event loop: all streams of the server wait while they do.

A thread schedules a callback on the loop and waits for it. If the callback is late, the run of the task that is executing is reported:
also if it is a task that the agent's framework started. The hot path is not touched.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.runs.containment import run_of_task
from ambient_runner.runs.run import log_context

if TYPE_CHECKING:
    from collections.abc import Generator

    from ambient_runner.runs.run import Run

__all__ = ["report_blocking_agents"]

logger = logging.getLogger(__name__)

_THRESHOLD = 1.0
"""Seconds after which a blocked event loop is reported."""
_LONG_BLOCK = 5.0
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
        """Return the run that started the task the loop is executing now."""
        return run_of_task(asyncio.current_task(self._loop))


def _log_block(verb: str, run: Run, seconds: float) -> None:
    logger.warning(
        "Agent %s %s the server for %.1f s (run %s on thread %s). Run blocking code in a thread: await asyncio.to_thread(…), "
        "or make `run` a plain generator.",
        run.agent,
        verb,
        seconds,
        run.key,
        run.thread.id,
        extra=log_context(run.key, run.thread.id, run.agent),
    )
