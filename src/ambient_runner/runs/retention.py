"""Forgetting old entries of a long thread. What they amounted to stays, in a checkpoint; readers of the gap are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.base import Checkpoint
from ambient_runner.runs.views import load_view

if TYPE_CHECKING:
    from ambient_runner.ledger.base import Ledger, ThreadKey


async def retain(ledger: Ledger, key: ThreadKey, keep: int) -> bool:
    """Drop what is older than the newest `keep` entries, at the edge of a run. Only once as much again has gathered.

    Raises: UnknownThread, LedgerError.
    """
    info = await ledger.thread(key)
    if info is None or info.last - info.first + 1 <= 2 * keep:
        return False
    oldest_kept = await ledger.run_at(key, info.last - keep + 1)
    if oldest_kept is None or oldest_kept.first <= info.first:
        return False
    edge = oldest_kept.first - 1
    view = await load_view(ledger, key, until=edge)
    await ledger.trim(key, Checkpoint(seq=edge, body=view.to_checkpoint()))
    return True
