"""When a stream ends: with its run, when there is no more for now, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ambient_runner.ledger.base import RUNTIME
from ambient_runner.runs.event_reader import is_idle

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Batch, Ledger, Tail, ThreadKey

__all__ = ["Never", "Until", "UntilIdle", "UntilRunEnds"]

_TERMINAL = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')


class Until(Protocol):
    """When a stream ends."""

    def after(self, batch: Batch) -> bool:
        """Whether this batch was the last one."""
        ...

    async def now(self, tail: Tail) -> bool:
        """Asked again and again while there is nothing to send, if `looks`."""
        ...

    @property
    def looks(self) -> bool: ...


class UntilRunEnds:
    """For the answer to a POST: up to the run's terminal event."""

    looks = False

    def __init__(self, run: str) -> None:
        self._run = run

    def after(self, batch: Batch) -> bool:
        return batch.run == self._run and batch.owner == RUNTIME and batch.lines[-1].startswith(_TERMINAL)

    async def now(self, tail: Tail) -> bool:
        return False


class UntilIdle:
    """Until all that is stored has been sent and no more is to come for now."""

    looks = True

    def __init__(self, ledger: Ledger, key: ThreadKey) -> None:
        self._ledger = ledger
        self._key = key

    def after(self, batch: Batch) -> bool:
        return False

    async def now(self, tail: Tail) -> bool:
        return await is_idle(self._ledger, self._key, tail.position)


class Never:
    """For a reader that follows the thread for good."""

    looks = False

    def after(self, batch: Batch) -> bool:
        return False

    async def now(self, tail: Tail) -> bool:
        return False
