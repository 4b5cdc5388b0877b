"""Feedback that a client may send again, under an id of its own: stored once. The facts have the ids, so that holds after a restart.

A claim of the id is stored with the fact, so that it holds for two processes at the same instant too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from ambient_runner.ledger.records import IdempotencyClaim
from ambient_runner.projections.projectors import FEEDBACK_OWNER
from ambient_runner.runs.view_cache import require_thread

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger
    from ambient_runner.ledger.records import ThreadInfo, ThreadKey

__all__ = ["claim_feedback_event", "has_feedback_event"]


class _EventFact(msgspec.Struct, rename="camel"):
    client_event_id: str = ""


def claim_feedback_event(info: ThreadInfo, event_id: str) -> IdempotencyClaim:
    """Return the claim of a client's id in this thread. The thread that follows after an erasure has others."""
    scope = msgspec.json.encode(["feedback", *info.key, info.epoch, event_id])
    return IdempotencyClaim(scope=hashlib.sha256(scope).hexdigest(), digest="")


async def has_feedback_event(ledger: Ledger, key: ThreadKey, event_id: str) -> bool:
    """Return True if the thread has feedback with this id among the entries that are retained. Raises: UnknownThread, LedgerError."""
    info = await require_thread(ledger, key)
    after = info.first - 1
    while batches := await ledger.read_batches(key, after, until=info.last, epoch=info.epoch):
        for batch in batches:
            if batch.owner == FEEDBACK_OWNER and any(_event_id(line) == event_id for line in batch.lines):
                return True
        after = batches[-1].last
    return False


def _event_id(line: bytes) -> str:
    return msgspec.json.decode(line, type=_EventFact).client_event_id
