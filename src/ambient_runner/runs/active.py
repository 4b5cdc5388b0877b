"""A run that executes in this process: its handles, its timeouts, and the cause of its end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import anyio

from ambient_runner.errors import RUN_ENDINGS, BridgeTimeout, RedactionFailed
from ambient_runner.protocol.events import Cancelled, RunError
from ambient_runner.runs.framing import run_finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ambient_runner.config import Timeouts
    from ambient_runner.errors import LedgerError
    from ambient_runner.ledger.base import Writer
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.protocol.events import Terminal
    from ambient_runner.runs.checkpoints import RunCheckpoint
    from ambient_runner.runs.pipeline import Pipeline
    from ambient_runner.runs.run import Agent, Run

Cause = Literal["stopped", "idle", "total", "shutdown", "redaction_failed"]


@dataclass(kw_only=True, slots=True, eq=False)
class ActiveRun:
    """The Runner's handles of a run while it executes."""

    run: Run
    agent: Agent
    writer: Writer
    pipeline: Pipeline
    timeouts: Timeouts
    store_patience: float = 0.0
    """Seconds by which the time to write the terminal event is longer: the store may be unable to write."""
    finalizing: anyio.CancelScope | None = None
    """Set while the terminal event is written."""
    cancel_requested: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Resolved when the agent must end now."""
    done: anyio.Event = field(default_factory=anyio.Event)
    cause: Cause | None = None
    """The reason for which the run is cancelled; None while it is not."""
    failure: LedgerError | None = None
    """The reason for which the run can no longer be written: its lease is lost, or the store has failed."""
    has_been_read: bool = False
    """True once a client has read this run's own stream."""
    reported_terminal: Terminal | None = None
    """The terminal event the handler has yielded."""
    on_end: Callable[[], Awaitable[None]] | None = None
    load_view: Callable[[int], Awaitable[ThreadView]] | None = None
    """Returns the thread as of a seq. None if nothing was open on the thread when the run began: then the terminal event alone decides
    what is open when it ends."""
    checkpoint: RunCheckpoint | None = None
    """The checkpoint to end the run with, if one is due by then."""

    def cancel(self, cause: Cause) -> None:
        """End the agent now. The first cause wins, but for a failure of redaction: clients must learn that the output is not complete."""
        self.cause = cause if cause == "redaction_failed" else self.cause or cause
        self.run.stopping.set()
        if cause == "shutdown" and self.finalizing is not None:
            self.finalizing.deadline -= self.store_patience
        if not self.cancel_requested.done():
            self.cancel_requested.set_result(None)

    def fail(self, error: LedgerError) -> None:
        """End the agent now: nothing that it yields can be written any more."""
        self.failure = self.failure or error
        if not self.cancel_requested.done():
            self.cancel_requested.set_result(None)

    def terminal_event(self) -> Terminal:
        """Return the terminal event of a run that was cancelled."""
        match self.cause:
            case "idle":
                message = f"The agent sent no event for {self.timeouts.idle:g} seconds and was stopped."
                return RunError(message=message, code=BridgeTimeout.code)
            case "total":
                message = f"The agent ran for {self.timeouts.total:g} seconds, the limit of one run, and was stopped."
                return RunError(message=message, code=BridgeTimeout.code)
            case "shutdown":
                return RunError(message=RUN_ENDINGS["shutdown"], code="shutdown")
            case "redaction_failed":
                return RunError(message=RedactionFailed().message, code=RedactionFailed.code)
            case _:
                return run_finished(self.run, Cancelled())


class Deadlines:
    """Cancels a run that is idle or runs for too long. Uses timers of the loop, so an event costs only a timestamp."""

    def __init__(self, active: ActiveRun) -> None:
        self._active = active
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []

    def __enter__(self) -> None:
        active = self._active
        active.pipeline.touch()
        self._timers = [
            self._loop.call_later(active.timeouts.total, active.cancel, "total"),
            self._loop.call_later(active.timeouts.idle, self._check_idle),
        ]

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def _check_idle(self) -> None:
        if self._active.writer.is_full():
            self._active.pipeline.touch()  # The agent waits for the store.
        left = self._active.pipeline.last_event_at + self._active.timeouts.idle - time.monotonic()
        if left <= 0:
            self._active.cancel("idle")
        else:
            self._timers[1] = self._loop.call_later(left, self._check_idle)
