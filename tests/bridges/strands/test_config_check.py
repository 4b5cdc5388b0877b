"""A behaviour for a tool that does not exist is named in the log: above all one that was to ask a person first."""

from __future__ import annotations

from typing import Any

import pytest
from strands import tool
from strands.multiagent import GraphBuilder

from ambient_runner.bridges.strands.config import PredictStateMapping, StrandsAgentConfig, ToolBehavior
from ambient_runner.bridges.strands.config_check import unknown_tool_names
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.world import TOOL, Thread, agent_of, strands

ASKS = ToolBehavior(interrupt_on_call=True)
SHOWS = ToolBehavior(predict_state=PredictStateMapping(state_key="a", tool="b", tool_argument="c"))


@tool
def delete_file(name: str) -> str:
    """Deletes a file."""
    return f"deleted {name}"


def config_of(**behaviors: ToolBehavior) -> StrandsAgentConfig:
    return StrandsAgentConfig(tool_behaviors=behaviors)


def quiet() -> ScriptedModel:
    return ScriptedModel(script=lambda messages: says("ok"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The unknown name of each warning, and its hint."""
    return [
        (record.args[1], record.args[3])
        for record in caplog.records
        if record.name.endswith("strands.config_check") and isinstance(record.args, tuple)
    ]


async def test_a_misspelt_approval_is_named_once_with_the_tool_that_was_meant(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(calls(call("c1", "delete_file", '{"name": "a"}')), says("done"), says("ok"), says("ok"))
    async with strands(agent_of(model, delete_file), config_of(delete_fil=ASKS)) as thread:
        stream = await thread.say("go")
        assert 'CR c1 "deleted a"' in stream
        assert stream[-1] == "RF success"
        await thread.say("again")
        await Thread(thread.runner, name="other").say("go")
    assert warnings(caplog) == [("delete_fil", "did you mean 'delete_file'?")]


async def test_right_names_and_the_clients_tools_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    config = config_of(delete_file=ASKS, change_background=ASKS, chart_later=SHOWS)
    async with strands(agent_of(quiet(), delete_file), config, tools=[TOOL]) as thread:
        await thread.say("go")
    assert warnings(caplog) == []


async def test_a_tool_of_an_agent_inside_is_known(caplog: pytest.LogCaptureFixture) -> None:
    helper = agent_of(quiet(), delete_file, name="helper", description="Helps.")
    config = config_of(delete_file=ASKS, helper=ASKS, deletefile=ASKS)
    async with strands(agent_of(quiet(), helper.as_tool(name="helper")), config) as thread:
        await thread.say("go")
    assert warnings(caplog) == [("deletefile", "did you mean 'delete_file'?")]


async def test_the_tools_of_a_graphs_agents_are_known(caplog: pytest.LogCaptureFixture) -> None:
    def build() -> Any:
        builder = GraphBuilder()
        builder.add_node(agent_of(quiet(), delete_file, name="a"), "a")
        builder.set_entry_point("a")
        builder.set_execution_timeout(60)
        return builder.build()

    async with strands(build, config_of(delete_file=ASKS, remove=ASKS)) as thread:
        await thread.say("go")
    assert warnings(caplog) == [("remove", "the tools are ['delete_file']")]


@pytest.mark.parametrize(
    "name", ["deleteFile", "delete-file", "DELETE_FILE", "delte_file", "delete_flie", "deleete_file"]
)
@pytest.mark.parametrize("behavior", [ASKS, SHOWS], ids=["asks", "shows"])
def test_a_typo_is_found_in_every_kind_of_behavior(name: str, behavior: ToolBehavior) -> None:
    assert unknown_tool_names(config_of(**{name: behavior}), {"delete_file", "look"}) == {name: "delete_file"}


@pytest.mark.parametrize("name", ["delete_files", "relete_file", "show_file", "chart"])
def test_what_may_be_a_tool_of_the_client_that_comes_later_is_left_alone_but_for_approvals(name: str) -> None:
    assert unknown_tool_names(config_of(**{name: SHOWS}), {"delete_file"}) == {}
    assert unknown_tool_names(config_of(**{name: ASKS}), {"delete_file"}).keys() == {name}


def test_a_name_similar_to_that_of_a_configured_tool_may_be_another_tool() -> None:
    assert unknown_tool_names(config_of(delete_file=ASKS, deleteFile=SHOWS), {"delete_file"}) == {}


def test_a_tool_the_client_declares_is_known() -> None:
    assert unknown_tool_names(config_of(delte_file=ASKS), {"delete_file"}, {"delte_file"}) == {}
