"""Until when a question may be answered, and what is said to an answer that comes too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ambient_runner.bridges.toolkit.interrupts import answered, expiry, lapsed
from ambient_runner.protocol.events import Custom, ResumeEntry


def test_a_question_expires_so_many_seconds_after_it_is_asked() -> None:
    before = datetime.now(UTC)
    told = expiry(0.5)
    assert told is not None
    assert before <= datetime.fromisoformat(told) - timedelta(seconds=0.5) <= datetime.now(UTC)


def test_without_a_limit_it_stays_open() -> None:
    assert expiry(None) is None


def test_who_answers_a_question_that_nobody_asks_is_told_and_who_cancels_it_is_not() -> None:
    entries = [ResumeEntry(interrupt_id="a", status="resolved"), ResumeEntry(interrupt_id="b", status="cancelled")]
    assert lapsed(answered(entries)) == [Custom(name="ambient:interrupt_lapsed", value={"interruptIds": ["a"]})]
    assert lapsed(answered(entries[1:])) == []
