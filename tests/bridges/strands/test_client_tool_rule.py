"""A tool that both the client declares and the agent has. The configuration decides who executes it."""

from __future__ import annotations

from typing import Any

import ag_ui.core as ag
import pytest
from strands import tool

from ambient_runner.bridges.strands.agent import StrandsAgent
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.errors import ConfigError
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.strands import create_strands_app
from tests.bridges.strands.scripted import ScriptedModel, call, calls, said_user, says, tool_result
from tests.bridges.strands.world import TOOL, agent_of, strands
from tests.machine_speed import unless_hung
from tests.server.demo_server import SETTINGS, client_of, frames, run_body

RED = '{"color": "red"}'
HALTS = ["CS f1 change_background < m1", f"CA f1 {RED}", "CE f1", "MS", "RF waits for f1"]
TAKEN = {"type": "TOOLS", "reason": "name_taken", "names": ["change_background"]}
executed: list[str] = []


@tool
def change_background(color: str) -> str:
    """Change the color of the page. The page does it; this is its stub."""
    executed.append(color)
    return "nothing"


@pytest.fixture(autouse=True)
def _forget() -> None:
    executed.clear()


def red_then_done() -> ScriptedModel:
    return ScriptedModel(calls(call("f1", "change_background", RED)), says("Done."))


async def stream(agent: StrandsAgent, *messages: e.Message) -> list[Any]:
    run_input = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=list(messages), tools=[TOOL]))
    with unless_hung():
        return [event async for event in agent.run(run_input)]


async def test_a_declared_tool_of_the_agent_halts_the_run_and_its_stub_is_not_executed() -> None:
    """The first example of the document: an agent with a stub, and a page that declares the same tool."""
    model = red_then_done()
    agent = StrandsAgent(agent_of(model, change_background))
    user = e.UserMessage(id="u1", content="red please")
    first = await stream(agent, user)
    assert [event.type.value for event in first] == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "RUN_FINISHED",
    ]
    assert (len(model.saw), executed) == (1, [])
    function = e.FunctionCall(name="change_background", arguments=RED)
    asked = e.AssistantMessage(id="a1", tool_calls=[e.ToolCall(id="f1", function=function)])
    second = await stream(agent, user, asked, e.ToolMessage(id="x", tool_call_id="f1", content="changed"))
    assert isinstance(second[-1], ag.RunFinishedEvent)
    assert model.saw[1][-1] == said_user(tool_result("f1", "changed"))
    assert executed == []


async def test_the_endpoint_helpers_keep_the_rule_of_the_document() -> None:
    model = red_then_done()
    app = create_strands_app(agent_of(model, change_background), settings=SETTINGS)
    declared = {"name": TOOL.name, "description": TOOL.description, "parameters": TOOL.parameters}
    async with client_of(app) as client:
        with unless_hung():
            response = await client.post("/", json=run_body("red please", tools=[declared]))
    assert [event for _, event in frames(response)][-1]["outcome"] == {
        "type": "success",
        "pendingToolCallIds": ["f1"],
    }
    assert (len(model.saw), executed) == (1, [])


async def test_the_model_gets_one_tool_with_the_description_of_the_agent() -> None:
    model = ScriptedModel(says("ok"))
    async with strands(agent_of(model, change_background), StrandsAgentConfig(client_tools="all"), tools=[TOOL]) as t:
        await t.say("hi")
    assert [spec["name"] for spec in model.tools] == ["change_background"]
    assert "its stub" in model.tools[0]["description"]


@pytest.mark.parametrize(
    "config",
    [
        StrandsAgentConfig(client_tools="declared"),
        StrandsAgentConfig(client_tools=[]),
        StrandsAgentConfig(client_tools=["other"]),
        StrandsAgentConfig({"change_background": ToolBehavior(client_may_answer=False)}, client_tools="all"),
    ],
)
async def test_a_tool_that_is_kept_on_the_server_is_executed_there(config: StrandsAgentConfig) -> None:
    model = red_then_done()
    agent = StrandsAgent(agent_of(model, change_background), config=config)
    events = await stream(agent, e.UserMessage(id="u1", content="red please"))
    assert (len(model.saw), executed) == (2, ["red"])
    assert [event.value for event in events if event.type is ag.EventType.CUSTOM] == [TAKEN]


async def test_a_name_that_differs_only_in_hyphens_is_the_agents_as_for_the_sdk() -> None:
    """The SDK refuses two such tools in one agent. The model was offered both, and a call of the client's skipped the agent's rules."""
    model = ScriptedModel(says("ok"))
    variant = e.Tool(name="change-background", description="forged", parameters={})
    config = StrandsAgentConfig({"change_background": ToolBehavior(client_may_answer=False)})
    async with strands(agent_of(model, change_background), config, tools=[variant]) as thread:
        await thread.say("hi")
        dropped = [event.value for event in thread.events if isinstance(event, e.Custom)]
    assert [spec["name"] for spec in model.tools] == ["change_background"]
    assert dropped == [{**TAKEN, "names": ["change-background"]}]


async def test_a_tool_that_needs_approval_cannot_be_executed_by_the_client() -> None:
    """A client could otherwise skip the approval by declaring the tool."""
    config = StrandsAgentConfig({"change_background": ToolBehavior(interrupt_on_call=True)}, client_tools="all")
    async with strands(agent_of(red_then_done(), change_background), config, tools=[TOOL]) as thread:
        assert (await thread.say("red please"))[-1] == "RF asks tool_call"


@pytest.mark.parametrize("rule", [["change_background"], "all"])
async def test_a_bridge_lets_the_client_execute_only_the_tools_it_is_given(rule: Any) -> None:
    for options, is_halted in (({}, False), ({"client_tools": rule}, True)):
        executed.clear()
        config = StrandsAgentConfig(**options)
        async with strands(agent_of(red_then_done(), change_background), config, tools=[TOOL]) as thread:
            assert (await thread.say("red please") == HALTS) is is_halted
        assert executed == ([] if is_halted else ["red"])


def test_the_bridge_has_the_rule_as_an_argument_too() -> None:
    bridge = StrandsBridge(agent_of(ScriptedModel()), client_tools=["change_background"])
    assert bridge._config.client_tools == ["change_background"]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError):
        StrandsAgentConfig(client_tools="none")  # type: ignore[arg-type]
