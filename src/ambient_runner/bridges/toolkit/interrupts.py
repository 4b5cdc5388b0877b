"""What questions to people have in common, whatever framework asks them. How one is put and answered is in each bridge's `questions.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Event, ResumeEntry

__all__ = ["answered", "expiry", "lapsed"]


def expiry(seconds: float | None) -> str | None:
    """Until when a question that is asked now may be answered, as an `Interrupt` says it; None for one that stays open."""
    return None if seconds is None else (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def answered(entries: Iterable[ResumeEntry]) -> list[str]:
    """The ids of the questions that have an answer. A cancelled one has none."""
    return [entry.interrupt_id for entry in entries if entry.status == "resolved"]


def lapsed(ids: Sequence[str]) -> list[Event]:
    """What clients are told when they answer questions that nobody asks any more; nothing when there are none."""
    return [Custom(name="ambient:interrupt_lapsed", value={"interruptIds": list(ids)})] if ids else []
