"""F22: an agent's events are legal, and much work: long snapshots in a row, thousands of items that stay open. None stops the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ag_ui.core as ag
import pytest

from ambient_runner.projections.history import finish
from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.events import (
    MessagesSnapshot,
    RunFinished,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageStart,
)
from tests.faults.loop_pauses import run_watched, shortest_pause_of_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Event

pytestmark = pytest.mark.usefixtures("frozen_test_objects")

MAX_PAUSE = 0.1  # seconds


def texts(count: int, version: int) -> list[dict[str, str]]:
    return [{"id": f"a{at}", "role": "assistant", "content": f"{version} some text"} for at in range(count)]


def snapshot_members(count: int, version: int = 0) -> dict[str, Any]:
    return {"type": "MESSAGES_SNAPSHOT", "messages": texts(count, version)}


SNAPSHOTS = {
    "dicts in a row": [snapshot_members(1_000, version) for version in range(20)],
    "models in a row": [ag.MessagesSnapshotEvent.model_validate(snapshot_members(1_000, v)) for v in range(20)],
    "a long dict": [snapshot_members(9_000)],
    "a long model": [ag.MessagesSnapshotEvent.model_validate(snapshot_members(9_000))],
    "the longest in a row": [snapshot_members(24_000, version) for version in range(2)],
}


@pytest.mark.parametrize("name", SNAPSHOTS)
async def test_f22_no_snapshot_of_an_agent_stops_the_server(name: str) -> None:
    """Nothing else ran during their conversion, their comparison and their corrections: 20 of 2,000 messages were one pause of 768 ms."""
    assert await shortest_pause_of_run(SNAPSHOTS[name], MAX_PAUSE) < MAX_PAUSE


OPENED: dict[str, list[Event]] = {
    "messages": [
        *(TextMessageStart(message_id=f"m{at}", role="assistant") for at in range(30_000)),
        *(TextMessageContent(message_id=f"m{at}", delta="x ") for at in range(30_000)),
    ],
    "steps": [StepStarted(step_name=f"s{at}") for at in range(40_000)],
}


@pytest.mark.parametrize("name", OPENED)
async def test_f22_the_end_of_a_run_that_left_thousands_of_items_open_does_not_stop_the_server(name: str) -> None:
    """All of them were closed at once, with the terminal event: 50,000 messages took 488 ms."""
    assert await shortest_pause_of_run(OPENED[name], MAX_PAUSE) < MAX_PAUSE


async def test_f22_everything_that_was_left_open_is_closed_before_the_terminal_event() -> None:
    seen = (await run_watched(OPENED["steps"][:1_000])).seen
    finished = [event.step_name for event in seen if isinstance(event, StepFinished)]
    assert (finished, [type(event) for event in seen[-2:]]) == (
        [f"s{at}" for at in reversed(range(1_000))],
        [MessagesSnapshot, RunFinished],
    )


@pytest.mark.parametrize("form", [dict, ag.MessagesSnapshotEvent.model_validate], ids=["dict", "model"])
def test_f22_a_snapshot_that_is_converted_in_slices_is_the_same(form: Callable[[dict[str, Any]], object]) -> None:
    """A message of an unknown role is left out and counted, in a dict; a model cannot have one."""
    unknown = [{"id": "x", "role": "alien", "content": ""}] if form is dict else []
    members = {"type": "MESSAGES_SNAPSHOT", "metadata": {"a": 1}, "timestamp": 5}
    snapshot = form(members | {"messages": [*texts(2_000, 0), *unknown]})
    at_once, in_slices = EventCoercer(), EventCoercer()
    assert finish(in_slices.convert_in_slices(snapshot)) == at_once(snapshot)
    assert in_slices.take_notices() == at_once.take_notices()
