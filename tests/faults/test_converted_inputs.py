"""M9: inputs that take long to convert for the agent. They are converted off the event loop, on a run's first request and on later ones."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from tests.faults.loop_pauses import shortest_pause, watch_loop_pauses
from tests.machine_speed import unless_hung
from tests.server.demo_server import client_of, run_body

if TYPE_CHECKING:
    import httpx

pytestmark = pytest.mark.usefixtures("frozen_test_objects")

SERVER_KEEPS_HISTORY = Settings(store="memory://", history="server")
MAX_PAUSE = 0.025  # seconds
"""Half of what is promised: the conversions alone took little more than that on a quiet machine."""
PART = {"type": "text", "text": "hi"}
IMAGE = {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}}
CALL = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "parameters": parameters}


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "1" + "]" * depth)


INPUTS: dict[str, dict[str, Any]] = {
    "a tool of many values": {"tools": [tool("t", {f"p{at}": at for at in range(95_000)})]},
    "many tools": {
        "tools": [
            tool(f"t{at}", {"type": "object", "properties": {f"p{each}": {"type": "string"} for each in range(30)}})
            for at in range(1_000)
        ]
    },
    "many text parts": {"messages": [{"id": "u", "role": "user", "content": [PART] * 30_000}]},
    "many images": {"messages": [{"id": "u", "role": "user", "content": [IMAGE] * 15_000}]},
    "many tool calls": {
        "messages": [
            {"id": "a", "role": "assistant", "toolCalls": [{**CALL, "id": f"c{at}"} for at in range(14_000)]},
            {"id": "u", "role": "user", "content": "hello"},
        ]
    },
    "a deep state": {"state": {"a": [nested(58)] * 1_600}, "tools": [tool("t", {})]},
}


async def post(client: httpx.AsyncClient, **members: Any) -> float:
    """Return the longest pause of the event loop during a run, which must succeed."""
    body = json.dumps({**run_body("hello"), **members}).encode()
    async with watch_loop_pauses() as pauses:
        response = await client.post("/", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 200
    assert "RUN_FINISHED" in response.text
    return pauses.longest


@pytest.mark.parametrize("name", INPUTS)
async def test_m9_an_input_that_takes_long_to_convert_delays_nobody(name: str) -> None:
    """Its conversion to models of `ag_ui.core` and back stopped the event loop for 40 to 130 ms."""
    threads = count()
    with unless_hung():
        async with client_of(create_app(Settings(store="memory://"), {"demo": DemoBridge()})) as client:

            async def measure() -> float:
                return await post(client, threadId=f"t{next(threads)}", **INPUTS[name])

            assert await shortest_pause(measure, MAX_PAUSE) < MAX_PAUSE


async def test_m9_many_parts_in_the_history_of_a_thread_delay_no_later_run() -> None:
    """The message of many parts was converted on the event loop again for every small request."""
    messages = count()
    with unless_hung():
        async with client_of(create_app(SERVER_KEEPS_HISTORY, {"demo": DemoBridge()})) as client:
            await post(client, **INPUTS["many text parts"])

            async def measure() -> float:
                return await post(client, messages=[{"id": f"m{next(messages)}", "role": "user", "content": "hello"}])

            assert await shortest_pause(measure, MAX_PAUSE) < MAX_PAUSE


async def test_m9_a_thread_of_very_many_messages_delays_nobody_with_each_run() -> None:
    """A request of one word on a thread of 100,000 messages stopped the event loop for 327 ms."""
    messages = count()

    def new_messages(number: int) -> list[dict[str, str]]:
        return [{"id": f"m{next(messages)}", "role": "user", "content": "hello"} for _ in range(number)]

    with unless_hung():
        async with client_of(create_app(SERVER_KEEPS_HISTORY, {"demo": DemoBridge()})) as client:
            for _ in range(5):
                await post(client, messages=new_messages(9_999))

            async def measure() -> float:
                return await post(client, messages=new_messages(1))

            assert await shortest_pause(measure, MAX_PAUSE) < MAX_PAUSE
