"""End conditions of an event stream: with its run, when the thread is idle, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ambient_runner.ledger.records import RUNTIME
from ambient_runner.protocol.events import is_terminal_line
from ambient_runner.runs.event_reader import is_idle

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger, Tail
    from ambient_runner.ledger.records import Batch, ThreadKey

__all__ = ["EndCondition", "NoEnd", "UntilIdle", "UntilRunEnds"]


class EndCondition(Protocol):
    """Decides when a stream ends."""

    def ends_with(self, batch: Batch) -> bool:
        """Return True if this batch is the last one."""
        ...

    async def is_reached(self, tail: Tail) -> bool:
        """Return True if the stream has reached its end. Called repeatedly while there is nothing to send, if `polls`."""
        ...

    @property
    def polls(self) -> bool: ...

    @property
    def run(self) -> str | None:
        """The run whose own stream this is; None for a stream of the thread."""
        ...


class UntilRunEnds:
    """Ends with the run's terminal event: for the response to a POST, and for readers of one run of a thread.

    Those are not the run's own stream: when they leave, a newer message does not supersede the run.
    """

    polls = False

    def __init__(self, run: str, *, is_own_stream: bool = True) -> None:
        self.run = run if is_own_stream else None
        self._key = run

    def ends_with(self, batch: Batch) -> bool:
        return batch.run == self._key and batch.owner == RUNTIME and is_terminal_line(batch.lines[-1])

    async def is_reached(self, tail: Tail) -> bool:
        return False


class UntilIdle:
    """Ends when everything stored has been sent and no run is active."""

    polls = True
    run = None

    def __init__(self, ledger: Ledger, key: ThreadKey) -> None:
        self._ledger = ledger
        self._key = key

    def ends_with(self, batch: Batch) -> bool:
        return False

    async def is_reached(self, tail: Tail) -> bool:
        return await is_idle(self._ledger, self._key, tail.position)


class NoEnd:
    """Never ends: for a reader that follows the thread."""

    polls = False
    run = None

    def ends_with(self, batch: Batch) -> bool:
        return False

    async def is_reached(self, tail: Tail) -> bool:
        return False
