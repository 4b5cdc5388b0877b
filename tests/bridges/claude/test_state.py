"""The state that Claude shares with the client: what it reads, and the tool with which it changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ambient_runner.claude import ClaudeBridge, PredictStateMapping
from ambient_runner.errors import ConfigError
from ambient_runner.protocol import events as e
from tests.bridges.claude.mock import model_request
from tests.bridges.claude.world import PAINT, claude


def tools_shown(words: str) -> list[str]:
    return [tool["function"]["name"] for tool in model_request(words).get("tools", [])]


def snapshots(events: list[e.Event]) -> list[object]:
    return [event.snapshot for event in events if isinstance(event, e.StateSnapshot)]


async def test_a_change_of_the_shared_state_reaches_clients_before_the_result_of_its_call(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        words = await thread.say("otter cooks", state={"recipe": "soup", "guests": 2})
        assert snapshots(thread.events)[-1] == {"recipe": "pasta", "guests": 2}
        await thread.say("say hello there")
    order = [word.split()[0] for word in words if word.split()[0] in ("CS", "SS", "CR", "RF")]
    assert order[-4:] == ["CS", "SS", "CR", "RF"]
    asked = str(model_request("say hello there")["messages"][-1]["content"])
    assert '{"recipe": "pasta", "guests": 2}' in asked


async def test_changes_that_are_not_an_object_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with claude(tmp_path) as world:
        thread = world.thread()
        await thread.say("otter burns", state={"recipe": "soup"})
    (result,) = [event for event in thread.events if isinstance(event, e.ToolCallResult)]
    assert (result.metadata or {}).get("isError") is True
    assert all(snapshot == {"recipe": "soup"} for snapshot in snapshots(thread.events))


@pytest.mark.parametrize(
    ("setting", "state", "is_offered"),
    [("shared", {"n": 1}, True), ("shared", {}, False), ("always", {}, True), ("never", {"n": 1}, False)],
)
async def test_the_tool_is_offered_as_configured(tmp_path: Path, setting: str, state: object, is_offered: bool) -> None:
    async with claude(tmp_path, state_tool=setting) as world:
        await world.thread().say("walrus sums up", state=state)
    assert ("mcp__ambient__update_state" in tools_shown("walrus sums up")) is is_offered


async def test_an_argument_is_predicted_and_is_the_state_when_its_call_ends(tmp_path: Path) -> None:
    mapping = PredictStateMapping(state_key="colour", tool="change_background", tool_argument="color")
    async with claude(tmp_path, predict_state=[mapping]) as world:
        thread = world.thread(tools=[PAINT])
        words = await thread.say("otter paints", state={"colour": "white"})
        predicted = [event for event in thread.events if isinstance(event, e.Custom) and event.name == "PredictState"]
        assert snapshots(thread.events)[-1] == {"colour": "teal"}
    assert [event.value for event in predicted] == [[mapping.to_payload()]]
    order = [word.split()[0] for word in words]
    assert order.index("CS") < order.index("CA") < order.index("SS") < order.index("CE")
    assert order[: order.index("CS")] == ["CUSTOM"]


def test_an_unknown_setting_of_the_tool_is_refused() -> None:
    with pytest.raises(ConfigError):
        ClaudeBridge(state_tool="sometimes")
