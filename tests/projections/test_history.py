"""Corrections that make a thread match its agent's own snapshot."""

from __future__ import annotations

from ambient_runner.projections.history import HistoryMerge
from ambient_runner.protocol.events import AssistantMessage, UserMessage
from tests.machine_speed import cpu_ratio


def merge_changed_snapshot(count: int) -> None:
    messages = [
        UserMessage(id="u", content="hello"),
        *(AssistantMessage(id=f"a{n}", content="x") for n in range(count)),
    ]
    changed = [*messages[:-1], AssistantMessage(id=f"a{count - 1}", content="y")]
    assert HistoryMerge(messages).merge_snapshot(changed) is not None


def test_a_correction_costs_in_proportion_to_the_messages() -> None:
    """The ids of the snapshot were collected again for each message: two snapshots of 9,000 messages stopped the server for 2 seconds."""
    assert cpu_ratio(lambda: merge_changed_snapshot(4_000), lambda: merge_changed_snapshot(1_000)) < 8
