"""F24: an agent patches large activities again and again, and CopilotKit's inspector reads the thread. That stops nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner import create_app
from ambient_runner.bridges.agui import AGUIBridge
from tests.faults.loop_pauses import shortest_pause, watch_loop_pauses
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, run_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import ag_ui.core as ag

pytestmark = pytest.mark.usefixtures("frozen_test_objects")

MAX_PAUSE = 0.05  # seconds


class ListedEvents:
    """An agent that sends these events."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events

    async def run(self, input: ag.RunAgentInput) -> AsyncIterator[Any]:
        for event in self._events:
            yield event


def snapshot(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "plan", "content": content}


def delta(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "plan", "patch": list(operations)}


def message(at: int) -> list[dict[str, Any]]:
    start = {"type": "TEXT_MESSAGE_START", "messageId": f"m{at}", "role": "assistant"}
    return [start, {"type": "TEXT_MESSAGE_END", "messageId": f"m{at}"}]


def wide(size: int) -> dict[str, Any]:
    return {f"key{at}": at for at in range(size)}


COPY = {"op": "copy", "from": "/a", "path": "/b"}
THREADS: dict[str, tuple[str, int, list[dict[str, Any]]]] = {
    "patches of a wide activity": (
        "events",
        500,
        [snapshot(wide(90_000)), *(delta({"op": "replace", "path": f"/key{at}", "value": 0}) for at in range(500))],
    ),
    "patches with copies": ("events", 100, [snapshot({"a": wide(9_000)}), *[delta(*[COPY] * 10)] * 100]),
    "many messages": ("messages", 40_000, [event for at in range(40_000) for event in message(at)]),
}
"""The route of the inspector, how many rows it returns at least, and the events of the agent."""


@pytest.mark.parametrize("name", THREADS)
async def test_f24_m4_no_thread_that_is_inspected_stops_the_server(name: str) -> None:
    """Its newest entries were folded and its messages were converted without a break: for up to two seconds."""
    route, count, events = THREADS[name]
    with unless_hung():
        async with client_of(create_app(SETTINGS, {"demo": AGUIBridge(ListedEvents(events))})) as client:
            assert (await client.post("/", json=run_body("go"))).status_code == 200

            async def measure() -> float:
                async with watch_loop_pauses() as pauses:
                    answer = await client.get(f"/copilotkit/threads/t/{route}")
                assert len(answer.json()[route]) > count
                return pauses.longest

            assert await shortest_pause(measure, MAX_PAUSE) < MAX_PAUSE
