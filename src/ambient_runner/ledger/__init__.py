"""The ledger: an append-only log per thread, one writer at a time. `base.py` is the contract; `open_ledger` opens a store by its URL."""

from __future__ import annotations

from ambient_runner.ledger.base import (
    BatchSink,
    DeferredEncoder,
    LeaseHeld,
    Ledger,
    OpenStore,
    StoreSettings,
    Tail,
    Writer,
)
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.ledger.records import (
    RUNTIME,
    ArchivedFilter,
    Batch,
    ChangedThreads,
    Checkpoint,
    CheckpointPart,
    CheckpointUpdate,
    Encoded,
    Fact,
    IdempotencyClaim,
    IdempotencyRecord,
    JoinedText,
    RunInfo,
    ThreadInfo,
    ThreadKey,
    ThreadLabels,
    ThreadStatus,
)
from ambient_runner.ledger.registry import open_ledger
from ambient_runner.ledger.sqlite import SqliteLedger

__all__ = [
    "RUNTIME",
    "ArchivedFilter",
    "Batch",
    "BatchSink",
    "ChangedThreads",
    "Checkpoint",
    "CheckpointPart",
    "CheckpointUpdate",
    "DeferredEncoder",
    "Encoded",
    "Fact",
    "IdempotencyClaim",
    "IdempotencyRecord",
    "JoinedText",
    "LeaseHeld",
    "Ledger",
    "MemoryLedger",
    "OpenStore",
    "RunInfo",
    "SqliteLedger",
    "StoreSettings",
    "Tail",
    "ThreadInfo",
    "ThreadKey",
    "ThreadLabels",
    "ThreadStatus",
    "Writer",
    "open_ledger",
]
