"""Tools the client executes, and the results it brings back (cases A8 to A12)."""

from __future__ import annotations

import dataclasses

import pytest
from strands import tool

from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT, MISSING_RESULT
from ambient_runner.protocol import events as e
from ambient_runner.protocol.ids import client_safe_id
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    said_assistant,
    said_user,
    says,
    text,
    thought,
    tool_result,
    tool_use,
)
from tests.bridges.strands.world import TOOL, agent_of, strands, tool_message
from tests.world import SETTINGS

RED = '{"color": "red"}'
CALL_RED = tool_use("f1", "change_background", {"color": "red"})


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def test_a_frontend_call_ends_the_run_and_its_result_begins_the_next() -> None:
    model = ScriptedModel(calls(text("Red it is."), call("f1", "change_background", RED)), says("Done."))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        assert await thread.say("red please") == [
            "TS m1",
            'TC m1 "Red it is."',
            "TE m1",
            "CS f1 change_background < m1",
            f"CA f1 {RED}",
            "CE f1",
            "MS",
            "RF waits for f1",
        ]
        assert len(model.saw) == 1
        assert await thread.answer(f1="changed") == ["TS m1", 'TC m1 "Done."', "TE m1", "MS", "RF success"]
    assert model.saw[1] == [
        said_user("red please"),
        said_assistant("Red it is.", CALL_RED),
        said_user(tool_result("f1", "changed")),
    ]


async def test_a_call_under_an_id_that_no_client_could_send_back_is_answered() -> None:
    """It was not: the SDK knew the call by the model's id, the client by another."""
    endless = "call_" + "x" * 300
    model = ScriptedModel(calls(call(endless, "change_background", RED)), says("Done."))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        assert (await thread.say("red please"))[-1] == f"RF waits for {client_safe_id(endless)}"
        await thread.answer(**{client_safe_id(endless): "changed"})
    assert model.saw[1][-1] == said_user(tool_result(client_safe_id(endless), "changed"))


async def test_the_model_is_offered_the_client_tool_and_the_agent_keeps_none_of_it() -> None:
    agent = agent_of(model := ScriptedModel(says("a"), says("b")), get_weather)
    odd = e.Tool(name="odd", description="", parameters=None)
    async with strands(agent, tools=[TOOL, odd]) as thread:
        await thread.say("one")
        assert model.tools[1:] == [
            {
                "name": "change_background",
                "description": "Change the colour of the page.",
                "inputSchema": {"json": TOOL.parameters},
            },
            {"name": "odd", "description": "odd", "inputSchema": {"json": {"type": "object", "properties": {}}}},
        ]
        thread.tools = []
        await thread.say("two")
    assert model.specs == [["get_weather", "change_background", "odd"], ["get_weather"]]
    assert agent.tool_names == ["get_weather"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a\r\nb", "~2", "x" * 65])
async def test_a_tool_the_model_cannot_call_is_not_offered_and_is_named_in_the_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(calls(call("c1", name or "other", "{}")), says("Sorry."))
    async with strands(agent_of(model, get_weather), tools=[TOOL, e.Tool(name=name, description="")]) as thread:
        stream = await thread.say("go")
    assert model.specs[0] == ["get_weather", "change_background"]
    assert stream[-1] == "RF success"
    assert (repr(name) if len(name) <= 64 else "of 65 characters") in caplog.text


async def test_where_both_have_a_tool_of_one_name_the_agent_executes_its_own() -> None:
    model = ScriptedModel(calls(call("tu1", "get_weather", '{"city": "x"}')), says("ok"))
    mine = e.Tool(name="get_weather", description="the client's")
    async with strands(agent_of(model, get_weather), tools=[mine]) as thread:
        assert 'CR tu1 "sunny in x"' in await thread.say("go")
    assert model.specs[0] == ["get_weather"]


async def test_reasoning_goes_back_with_its_signature_although_clients_never_see_it() -> None:
    model = ScriptedModel(calls(thought("Hm.", signature="sig"), call("f1", "change_background", RED)), says("ok"))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        await thread.say("red")
        await thread.runner.agents["agent"].aclose()
        await thread.answer(f1="done")
    assert model.saw[1][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        CALL_RED,
    ]


async def test_results_of_the_agents_tools_come_before_the_client_may_act() -> None:
    model = ScriptedModel(
        calls(call("f1", "change_background", RED), call("b1", "get_weather", '{"city": "x"}')), says("Both done.")
    )
    async with strands(agent_of(model, get_weather), tools=[TOOL]) as thread:
        assert await thread.say("both") == [
            "CS f1 change_background < m1",
            f"CA f1 {RED}",
            "CS b1 get_weather < m1",
            'CA b1 {"city": "x"}',
            "CE b1",
            'CR b1 "sunny in x"',
            "MS",
            "CE f1",
            "MS",
            "RF waits for f1",
        ]
        assert len(model.saw) == 1
        assert await thread.answer(f1="changed") == ["TS m1", 'TC m1 "Both done."', "TE m1", "MS", "RF success"]
    assert model.saw[1] == [
        said_user("both"),
        said_assistant(CALL_RED, tool_use("b1", "get_weather", {"city": "x"})),
        said_user(tool_result("f1", "changed"), tool_result("b1", "sunny in x")),
    ]


async def test_an_error_of_the_client_is_an_error_for_the_model() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", RED)), says("sorry"))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        await thread.say("red")
        await thread.answer(f1={"content": "no such colour", "error": "no such colour"})
    assert model.saw[1][-1] == said_user(tool_result("f1", "no such colour", status="error"))


async def test_an_empty_result_is_something_a_provider_takes() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", RED)), says("ok"))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        await thread.say("red")
        await thread.answer(f1="")
    assert model.saw[1][-1] == said_user(tool_result("f1", EMPTY_RESULT))


async def test_a_new_message_abandons_the_open_call_and_the_model_is_informed() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", RED)), says("Fine."))
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        await thread.say("red")
        assert (await thread.say("never mind"))[-1] == "RF success"
    assert model.saw[1] == [
        said_user("red"),
        said_assistant(CALL_RED),
        said_user(tool_result("f1", MISSING_RESULT, status="error"), "never mind"),
    ]


async def test_results_that_come_twice_late_or_for_nothing_leave_a_valid_history() -> None:
    """The client owns the history here, and sends it in disorder."""

    def asks(call_id: str) -> e.ToolCall:
        return e.ToolCall(id=call_id, function=e.FunctionCall(name="get_weather", arguments='{"city": "x"}'))

    model = ScriptedModel(says("ok"))
    history = [
        e.UserMessage(id="u1", content="go"),
        e.AssistantMessage(id="a1", content="Both:"),
        e.AssistantMessage(id="a2", tool_calls=[asks("c1"), asks("c2")]),
        tool_message("c2", "second"),
        tool_message("orphan", "whose?"),
        tool_message("c1", "first"),
        e.AssistantMessage(id="a3", content="Done."),
        e.UserMessage(id="u2", content="and?"),
        e.UserMessage(id="u3", content="well?"),
    ]
    settings = dataclasses.replace(SETTINGS, history="client")
    async with strands(agent_of(model, get_weather), settings=settings) as thread:
        await thread.run(*history)
    assert model.saw == [
        [
            said_user("go"),
            said_assistant(
                "Both:", tool_use("c1", "get_weather", {"city": "x"}), tool_use("c2", "get_weather", {"city": "x"})
            ),
            said_user(tool_result("c1", "first"), tool_result("c2", "second")),
            said_assistant("Done."),
            said_user("and?", "well?"),
        ]
    ]


async def test_a_frontend_tool_may_let_the_model_continue() -> None:
    model = ScriptedModel(calls(call("f1", "change_background", RED)), says("It will be red."))
    config = StrandsAgentConfig(tool_behaviors={"change_background": ToolBehavior(continue_after_frontend_call=True)})
    async with strands(agent_of(model), config, tools=[TOOL]) as thread:
        assert await thread.say("red") == [
            "CS f1 change_background < m1",
            f"CA f1 {RED}",
            "CE f1",
            "TS m2",
            'TC m2 "It will be red."',
            "TE m2",
            "MS",
            "RF waits for f1",
        ]
    assert len(model.saw) == 2
