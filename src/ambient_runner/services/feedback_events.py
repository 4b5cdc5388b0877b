"""Feedback that a client may send again, under an id of its own: stored once. The facts have the ids, so that holds after a restart."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from ambient_runner.errors import UnknownThread
from ambient_runner.projections.projectors import FEEDBACK_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadKey

__all__ = ["FeedbackEvents", "has_feedback_event"]


class _EventFact(msgspec.Struct, rename="camel"):
    client_event_id: str = ""


async def has_feedback_event(ledger: Ledger, key: ThreadKey, event_id: str) -> bool:
    """Return True if the thread has feedback with this id among the entries that are retained. Raises: UnknownThread, LedgerError."""
    info = await ledger.get_thread(key)
    if info is None:
        raise UnknownThread
    after = info.first - 1
    while batches := await ledger.read_batches(key, after, until=info.last, epoch=info.epoch):
        for batch in batches:
            if batch.owner == FEEDBACK_OWNER and any(_event_id(line) == event_id for line in batch.lines):
                return True
        after = batches[-1].last
    return False


def _event_id(line: bytes) -> str:
    return msgspec.json.decode(line, type=_EventFact).client_event_id


class FeedbackEvents:
    """Lets one request at a time look for an id of a thread and store feedback under it.

    Two processes may store the same feedback twice if it reaches both at once. It says the same, and its score has one id.
    """

    def __init__(self) -> None:
        self._locks: dict[ThreadKey, anyio.Lock] = {}

    @asynccontextmanager
    async def lock_thread(self, key: ThreadKey) -> AsyncGenerator[None, None]:
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked:
                self._locks.pop(key, None)
