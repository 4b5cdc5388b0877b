"""The ledger: an append-only log per thread, one writer at a time. `base.py` is the contract, `open_ledger` the way in."""

from __future__ import annotations

from ambient_runner.ledger.base import (
    RUNTIME,
    Batch,
    Checkpoint,
    Encoded,
    Fact,
    Held,
    KeyClaim,
    KeyUse,
    Ledger,
    RunInfo,
    Tail,
    Taker,
    Text,
    ThreadInfo,
    ThreadKey,
    Writer,
)
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.registry import open_ledger
from ambient_runner.ledger.sqlite import SqliteLedger

__all__ = [
    "RUNTIME",
    "Batch",
    "Checkpoint",
    "Encoded",
    "Fact",
    "Held",
    "KeyClaim",
    "KeyUse",
    "Ledger",
    "MemoryLedger",
    "RunInfo",
    "SqliteLedger",
    "Tail",
    "Taker",
    "Text",
    "ThreadInfo",
    "ThreadKey",
    "Writer",
    "open_ledger",
]
