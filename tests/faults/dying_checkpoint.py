"""A bridge whose server ends by SIGKILL in the transaction of its n-th checkpoint: `x=tests.faults.dying_checkpoint:bridge`.

`DIE_AT` is that number. With `DIE_WHEN=before` it dies before the checkpoint's rows are written, with `after` after them, with `committed`
after the commit and before it is published.
"""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import TYPE_CHECKING

from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.ledger.sqlite import checkpoints
from ambient_runner.ledger.sqlite.committer import Committer

if TYPE_CHECKING:
    import sqlite3

    from ambient_runner.ledger.commit_jobs import PublishedBatch
    from ambient_runner.ledger.records import CheckpointUpdate

_NUMBERS = count(1)
_store, _account = checkpoints.store_checkpoint, Committer._account_written  # pyright: ignore[reportPrivateUsage]
_is_last = False


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _store_and_die(connection: sqlite3.Connection, no: int, checkpoint: CheckpointUpdate) -> None:
    global _is_last
    when = os.environ["DIE_WHEN"]
    is_it = next(_NUMBERS) == int(os.environ["DIE_AT"])
    if is_it and when == "before":
        _die()
    _store(connection, no, checkpoint)
    if is_it and when == "after":
        _die()
    _is_last = is_it


def _account_and_die(self: Committer, published: list[PublishedBatch]) -> None:
    if _is_last:
        _die()
    _account(self, published)


def bridge() -> DemoBridge:
    """Return the demo agent, on a server that will die."""
    checkpoints.store_checkpoint = _store_and_die
    Committer._account_written = _account_and_die  # pyright: ignore[reportPrivateUsage]
    return DemoBridge()
