"""The event that stores an adapter's memory."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.memory import memory_events


def test_without_a_server_no_event_could_be_stored_so_there_is_none() -> None:
    assert memory_events({"seen": 1}) == []
