"""The examples, as a person would use them but for the model."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bridges.strands.scripted import ScriptedModel, call, calls, said_user, says
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

EXAMPLES = Path(__file__).parents[3] / "examples"
BACKGROUND = {
    "name": "change_background",
    "description": "Change the background colour of the page",
    "parameters": {"type": "object", "properties": {"background": {"type": "string"}}},
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page:
    """A page that talks to an example."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def post(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        with unless_hung():
            response = await self._client.post("/", json=body)
        assert response.status_code == 200, response.text
        return [event for _, event in frames(response)]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_the_chat_calls_a_tool_of_the_page_and_continues_with_its_result() -> None:
    model = ScriptedModel(calls(call("c1", "change_background", '{"background": "teal"}')), says("It is teal now."))
    async with client_of(example("strands_agentic_chat").create(model, SETTINGS)) as client:
        page = Page(client)
        first = await page.post(run_body("Make it teal", tools=[BACKGROUND]))
        assert kinds(first)[2:5] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
        assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
        result = {"id": "a1", "role": "tool", "toolCallId": "c1", "content": "done"}
        second = await page.post({"threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": [result]})
    assert [event["delta"] for event in second if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["It is teal ", "now."]


async def test_backend_tools_are_rendered_from_their_results() -> None:
    chart = {"title": "Rain", "values": {"Mon": 1.0, "Tue": 2.5}}
    model = ScriptedModel(
        calls(call("c1", "get_weather", '{"city": "Lisbon"}'), call("c2", "render_chart", json.dumps(chart))),
        says("There it is."),
    )
    async with client_of(example("strands_backend_tool_rendering").create(model, SETTINGS)) as client:
        events = await Page(client).post(run_body("weather and a chart"))
    results = {
        event["toolCallId"]: json.loads(event["content"])
        for event in events
        if "toolCallId" in event and "content" in event
    }
    assert results["c1"]["city"] == "Lisbon"
    assert results["c2"] == {"kind": "bar", **chart}
    assert kinds(events).count("MESSAGES_SNAPSHOT") == 3


async def test_the_recipe_is_shared_both_ways() -> None:
    recipe = {"title": "Soup", "ingredients": ["water", "salt"], "steps": ["boil"]}
    model = ScriptedModel(calls(call("c1", "write_recipe", json.dumps(recipe))), says("I added salt."))
    async with client_of(example("strands_shared_state").create(model, SETTINGS)) as client:
        state = {"recipe": {"title": "Soup"}, "user": "ada"}
        events = await Page(client).post(run_body("more taste", state=state))
    snapshots = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
    assert snapshots[-2:] == [
        {"recipe": recipe, "user": "ada"},
        {"recipe": recipe, "user": "ada", "facts": {"minutes": 15, "shopping": 2}},
    ]
    assert model.saw[0] == [said_user('The current recipe:\n{"title": "Soup"}\n\nmore taste')]


async def test_the_plan_is_predicted_shown_and_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("strands_agentic_generative_ui")
    monkeypatch.setattr(module, "STEP_DURATION", 0)
    model = ScriptedModel(calls(call("c1", "plan_steps", '{"steps": ["mix",', ' "bake"]}')), says("never said"))
    async with client_of(module.create(model, SETTINGS)) as client:
        events = await Page(client).post(run_body("a cake"))
        state = (await client.get("/state_snapshot/t")).json()["snapshot"]
    expected = [kind for kind in kinds(events) if kind != "MESSAGES_SNAPSHOT"]
    assert expected == [
        "RUN_STARTED",
        "CUSTOM",  # ambient:capabilities
        "CUSTOM",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "STATE_SNAPSHOT",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "STATE_DELTA",
        "STATE_DELTA",
        "RUN_FINISHED",
    ]
    assert [step["status"] for step in state["steps"]] == ["completed", "completed"]
    assert len(model.saw) == 1
