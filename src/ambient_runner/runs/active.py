"""A run that is going on in this process: its task's handles, its deadlines, and why it ends."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import anyio

from ambient_runner.errors import BridgeTimeout
from ambient_runner.protocol.events import Cancelled, RunError
from ambient_runner.runs.framing import finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ambient_runner.config import Timeouts
    from ambient_runner.ledger.base import Writer
    from ambient_runner.protocol.events import Terminal
    from ambient_runner.runs.pipeline import Pipeline
    from ambient_runner.runs.run import Agent, Run

Cause = Literal["stopped", "idle", "total", "shutdown"]


@dataclass(kw_only=True, slots=True, eq=False)
class ActiveRun:
    """What the Runner holds of a run while it drives it."""

    run: Run
    agent: Agent
    writer: Writer
    pipeline: Pipeline
    timeouts: Timeouts
    cut_short: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Resolved when the agent must end now."""
    done: anyio.Event = field(default_factory=anyio.Event)
    cause: Cause | None = None
    """Why it was cut short; None while nothing cuts it."""
    unread: bool = False
    """Whether everyone who read it has left."""
    said: Terminal | None = None
    """The terminal event the handler has given."""
    on_end: Callable[[], Awaitable[None]] | None = None
    heard: float = 0.0
    """When the agent last said something that was not put aside (`Pipeline.heard`), on the monotonic clock."""

    def cut(self, cause: Cause) -> None:
        """End the agent now. The first cause stays."""
        self.cause = self.cause or cause
        self.run.stopping.set()
        if not self.cut_short.done():
            self.cut_short.set_result(None)

    def terminal(self) -> Terminal:
        """The terminal event of a run that was cut short."""
        match self.cause:
            case "idle":
                silent = f"The agent said nothing for {self.timeouts.idle:g} seconds and was stopped."
                return RunError(message=silent, code=BridgeTimeout.code)
            case "total":
                long = f"The agent ran for {self.timeouts.total:g} seconds, the longest it may, and was stopped."
                return RunError(message=long, code=BridgeTimeout.code)
            case "shutdown":
                return RunError(message="The server was shut down during this run. Send it again.", code="shutdown")
            case _:
                return finished(self.run, Cancelled())


class Deadlines:
    """Cuts a run that is silent or goes on for too long. Timers of the loop, so an event costs nothing but `heard`."""

    def __init__(self, active: ActiveRun) -> None:
        self._active = active
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []

    def __enter__(self) -> None:
        active = self._active
        active.heard = time.monotonic()
        self._timers = [
            self._loop.call_later(active.timeouts.total, active.cut, "total"),
            self._loop.call_later(active.timeouts.idle, self._check_idle),
        ]

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def _check_idle(self) -> None:
        heard = max(self._active.heard, self._active.pipeline.heard)
        left = heard + self._active.timeouts.idle - time.monotonic()
        if left <= 0:
            self._active.cut("idle")
        else:
            self._timers[1] = self._loop.call_later(left, self._check_idle)
