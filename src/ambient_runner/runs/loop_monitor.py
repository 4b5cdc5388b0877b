"""Report code that blocks the event loop: all streams of the server wait while it does.

The loop counts ticks, and a thread watches them. If the next one is late, the stack of the loop's thread shows what blocks, and its task
the run: also if it is a task that the agent's framework started. The hot path is not touched.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ambient_runner.ledger.log_context import log_context
from ambient_runner.runs.containment import run_of_task
from ambient_runner.runs.metrics import LOOP_BLOCKED_SECONDS
from ambient_runner.runs.user_frames import (
    describe_frame,
    find_own_frame,
    find_user_frame,
    format_stack,
    frames_of_thread,
    is_idle_loop,
    is_import,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from ambient_runner.runs.run import Run

__all__ = ["report_blocked_loop"]

logger = logging.getLogger(__name__)

_THRESHOLD = 1.0
"""Seconds after which a blocked event loop is reported."""


@contextmanager
def report_blocked_loop(threshold: float = _THRESHOLD) -> Generator[None]:
    """Log a warning, with the stack, for whatever blocks the running event loop for longer than `threshold` seconds, and measure it."""
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
        self._interval = threshold / 2
        self._stopped = threading.Event()
        self._ticks = 0
        self._ticked_at = time.monotonic()
        self._cpu_at_tick = time.thread_time()
        self._seen_at_tick = -1
        """The tick after which the thread has seen what blocked."""
        self._next_tick: asyncio.TimerHandle | None = None
        self._blocking_run: Run | None = None
        """The run that the last report named; None if it was the server itself, or an app."""
        self._is_event_blocking = False
        """True if that report was of our work on an event of the run; False if its agent itself blocked."""

    def start(self) -> None:
        self._schedule_tick()
        super().start()

    def stop(self) -> None:
        self._stopped.set()
        if self._next_tick is not None:
            self._next_tick.cancel()

    def run(self) -> None:
        while not self._stopped.is_set():
            started, cpu_started = time.monotonic(), time.process_time()
            self._stopped.wait(self._threshold / 4)
            if self._is_late() and not self._was_suspended(started, cpu_started):
                self._follow_block(self._ticks, self._ticked_at)

    def _schedule_tick(self) -> None:
        self._next_tick = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        """Called on the loop. A late tick measures what blocked. If the thread has not seen it and the loop worked, nobody could have."""
        elapsed, used = time.monotonic() - self._ticked_at, time.thread_time() - self._cpu_at_tick
        if elapsed > self._interval + self._threshold:
            if self._seen_at_tick == self._ticks:
                LOOP_BLOCKED_SECONDS.observe(elapsed)
                _log_end(self._blocking_run, elapsed, is_event=self._is_event_blocking)
            elif used > self._threshold / 2:
                self._report_unseen_block(elapsed)
        self._ticks += 1
        self._ticked_at, self._cpu_at_tick = time.monotonic(), time.thread_time()
        self._schedule_tick()

    def _is_late(self) -> bool:
        return time.monotonic() - self._ticked_at > self._interval + self._threshold

    def _was_suspended(self, started: float, cpu_started: float) -> bool:
        """Return True if this thread is late too and the process did little: it was stopped, or got no CPU."""
        elapsed = time.monotonic() - started
        return elapsed > self._threshold and time.process_time() - cpu_started < self._threshold / 4

    def _follow_block(self, tick: int, started: float) -> None:
        """Report a block once, as soon as the code that blocks is seen."""
        while self._ticks == tick and self._seen_at_tick != tick and not self._stopped.is_set():
            self._report_block(tick, time.monotonic() - started)
            self._stopped.wait(self._threshold / 4)

    def _report_unseen_block(self, seconds: float) -> None:
        """Log and measure a block that was over before the thread could run: a call of C code kept the interpreter's lock."""
        LOOP_BLOCKED_SECONDS.observe(seconds)
        logger.warning(
            "The server was blocked for %.1f s by one call of C code that keeps the interpreter's lock, so it could not be seen which: no "
            "stream got events meanwhile. Look for a regular expression, a sort or a calculation on a lot of data in the agents that ran, "
            "and run it in another process.",
            seconds,
        )

    def _report_block(self, tick: int, seconds: float) -> None:
        """Log what the loop executes now; nothing if that is nothing, or a module that is imported by the server itself."""
        frames = frames_of_thread(self._loop_thread)
        run = run_of_task(asyncio.current_task(self._loop))
        if is_idle_loop(frames) or (run is None and is_import(frames)):
            return
        own = find_own_frame(frames)
        self._blocking_run, self._is_event_blocking, self._seen_at_tick = run, own is not None, tick
        if run is not None and own is not None:
            _log_large_event(run, seconds, own, frames)
        elif run is not None:
            _log_agent(run, seconds, frames)
        else:
            logger.warning(
                "The server has been blocked for %.1f s in %s: no stream gets events meanwhile. Run blocking code in a thread: await "
                "asyncio.to_thread(…). If it is not code of yours, report it. The stack:\n%s",
                seconds,
                _describe_line(frames),
                format_stack(frames),
            )


def _log_agent(run: Run, seconds: float, frames: list[FrameType]) -> None:
    logger.warning(
        "Agent %s has blocked the server for %.1f s in %s (run %s on thread %s): no stream gets events meanwhile. Run blocking code in a "
        "thread: await asyncio.to_thread(…), or make `run` a plain generator. The stack:\n%s",
        run.agent,
        seconds,
        _describe_line(frames),
        run.key,
        run.thread.id,
        format_stack(frames),
        extra=log_context(run.key, run.thread.id, run.agent),
    )


def _log_large_event(run: Run, seconds: float, own: FrameType, frames: list[FrameType]) -> None:
    """Log that our own code is busy with an event of the agent. Only a large event takes that long."""
    logger.warning(
        "The server has been busy for %.1f s with an event of agent %s in %s (run %s on thread %s): no stream gets events meanwhile. Send "
        "less in one event: patches instead of a large state, or a link instead of a long text. The stack:\n%s",
        seconds,
        run.agent,
        describe_frame(own),
        run.key,
        run.thread.id,
        format_stack(frames),
        extra=log_context(run.key, run.thread.id, run.agent),
    )


def _log_end(run: Run | None, seconds: float, *, is_event: bool) -> None:
    if run is None:
        logger.info("The server continues after it was blocked for %.1f s.", seconds)
        return
    logger.info(
        "The server continues. %s %s blocked it for %.1f s (run %s on thread %s).",
        "An event of agent" if is_event else "Agent",
        run.agent,
        seconds,
        run.key,
        run.thread.id,
        extra=log_context(run.key, run.thread.id, run.agent),
    )


def _describe_line(frames: list[FrameType]) -> str:
    """Return the innermost line of the user's code; without one, the line that is executed."""
    return describe_frame(find_user_frame(frames) or frames[-1])
