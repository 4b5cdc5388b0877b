"""Amazon Bedrock AgentCore's AG-UI app serves a StrandsAgent as it serves any AG-UI agent."""

from __future__ import annotations

import json
import warnings
from typing import Any

import httpx
from strands import tool

from ambient_runner.protocol.decode import decode_event
from ambient_runner.strands import StrandsAgent
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says, text, thought, turn
from tests.bridges.strands.world import agent_of, verify
from tests.machine_speed import unless_hung

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own pydantic models
    from bedrock_agentcore.runtime import build_ag_ui_app

BODY = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "u1", "role": "user", "content": "time?"}],
    "tools": [],
    "context": [],
    "state": {"zone": "UTC"},
    "forwardedProps": {},
}


@tool
def now() -> str:
    """The time."""
    return "noon"


async def post(app: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    transport = httpx.ASGITransport(app=app)
    with unless_hung():
        async with httpx.AsyncClient(transport=transport, base_url="http://agentcore") as client:
            response = await client.post("/invocations", json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]


async def test_the_agentcore_app_streams_a_whole_run() -> None:
    model = ScriptedModel(calls(text("I look."), call("c1", "now")), turn(thought("Hm."), text("It is ", "noon.")))
    events = await post(build_ag_ui_app(StrandsAgent(agent_of(model, now), name="helper")), BODY)
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "MESSAGES_SNAPSHOT",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    verify([decode_event(json.dumps(event).encode()) for event in events])


async def test_a_failure_is_an_event_of_the_run_there_too() -> None:
    model = ScriptedModel([*says("half")[:3], RuntimeError("gone")])
    events = await post(build_ag_ui_app(StrandsAgent(agent_of(model), name="helper")), BODY)
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "strands_force_stop"
