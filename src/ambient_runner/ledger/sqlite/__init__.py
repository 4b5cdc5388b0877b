"""The store in one file: WAL, one writing thread per process, group commit, full fsync."""

from __future__ import annotations

from ambient_runner.ledger.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
