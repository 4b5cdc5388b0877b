"""Until when a question may be answered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ambient_runner.bridges.questions import expiry


def test_a_question_expires_so_many_seconds_after_it_is_asked() -> None:
    before = datetime.now(UTC)
    told = expiry(0.5)
    assert told is not None
    assert before <= datetime.fromisoformat(told) - timedelta(seconds=0.5) <= datetime.now(UTC)


def test_without_a_limit_it_stays_open() -> None:
    assert expiry(None) is None
