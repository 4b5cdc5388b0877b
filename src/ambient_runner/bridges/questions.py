"""What questions to people have in common, whatever framework asks them. How one is put and answered is in each bridge's `questions.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["expiry"]


def expiry(seconds: float | None) -> str | None:
    """Until when a question that is asked now may be answered, as an `Interrupt` says it; None for one that stays open."""
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
