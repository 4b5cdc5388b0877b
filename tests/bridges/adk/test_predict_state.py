"""Predicted state: the tool arguments that clients show as state (row 24)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.adk.tools import ToolContext
from google.genai import types

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.registry import load_agents
from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping
from ambient_runner.config import read_settings
from tests.bridges.adk.scripted import call, piece, reply
from tests.bridges.adk.world import agent, talking

DRAFT = PredictStateMapping(state_key="document", tool="write", tool_argument="text")
TITLE = PredictStateMapping(state_key="title", tool="write", tool_argument="title")
OTHER = PredictStateMapping(state_key="other", tool="paint", tool_argument="colour")
PREDICTED = (
    "X PredictState [{'state_key': 'document', 'tool': 'write', 'tool_argument': 'text'}, "
    "{'state_key': 'title', 'tool': 'write', 'tool_argument': 'title'}]"
)


def write(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Write the document."""
    tool_context.state["document"] = text
    return {}


async def test_every_call_of_a_predicted_tool_first_names_its_arguments_that_are_state() -> None:
    root, _ = agent(
        ["First. ", call("write", "w1", text="a")], [call("write", "w2", text="b")], ["Done."], tools=[write]
    )
    async with talking(root, predict_state=[DRAFT, OTHER, TITLE]) as talk:
        assert await talk.say("u1") == [
            *("RS", "TS m1", "TC First. ", "TE"),
            *(PREDICTED, "CS w1 write", 'CA w1 {"text":"a"}', "CE w1", "CR w1 {}"),
            "SD [{'op': 'add', 'path': '/document', 'value': 'a'}]",
            *(PREDICTED, "CS w2 write", 'CA w2 {"text":"b"}', "CE w2", "CR w2 {}"),
            "SD [{'op': 'replace', 'path': '/document', 'value': 'b'}]",
            *("TS m2", "TC Done.", "TE", "SS {'document': 'b'}", "RF"),
        ]


async def test_a_streamed_call_is_predicted_once_before_its_first_argument() -> None:
    begun = piece(types.Part(function_call=types.FunctionCall(name="write", will_continue=True)))
    part = types.PartialArg(json_path="$.text", string_value="long")
    streamed = piece(types.Part(function_call=types.FunctionCall(partial_args=[part], will_continue=True)))
    ended = piece(types.Part(function_call=types.FunctionCall()))
    root, _ = agent([begun, streamed, ended, reply(call("write", text="long"))], ["Done."], tools=[write])
    async with talking(root, predict_state=[DRAFT, TITLE]) as talk:
        words = await talk.say("u1")
    assert words[:6] == ["RS", PREDICTED, "CS c1 write", 'CA c1 {"text":"long"', "CA c1 }", "CE c1"]


async def test_a_single_mapping_needs_no_list_and_other_tools_are_not_predicted() -> None:
    root, _ = agent([call("write", "w1", text="a")], ["Done."], tools=[write])
    async with talking(root, predict_state=OTHER) as talk:
        assert not any(word.startswith("X PredictState") for word in await talk.say("u1"))


def test_predicted_state_can_be_configured_in_a_table(tmp_path: Path) -> None:
    mapping = '{ state_key = "document", tool = "write", tool_argument = "text" }'
    table = f'store = "memory://"\n[agents.mine]\nbridge = "adk"\npredict_state = [{mapping}]\n'
    (tmp_path / "ambient.toml").write_text(table)
    bridge = load_agents(read_settings(tmp_path / "ambient.toml", {}).agents)["mine"]
    assert isinstance(bridge, ADKBridge)
    assert bridge.predictions == {"write": [DRAFT.to_payload()]}
