"""The messages that the model gets on the next turn, and client tools whose results come late or one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ag_ui.core as ag
import pytest
from strands import tool
from strands.agent.conversation_manager import ConversationManager, SlidingWindowConversationManager
from strands.agent.conversation_manager.summarizing_conversation_manager import SummarizingConversationManager
from strands.types.exceptions import ContextWindowOverflowException

from ambient_runner.bridges.strands.agent import StrandsAgent
from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.bridges.toolkit.turns import FORWARDED_RESULT
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    said_assistant,
    said_user,
    says,
    tool_result,
    tool_use,
)
from tests.bridges.strands.world import TOOL, agent_of, strands, tool_message
from tests.machine_speed import unless_hung

RED = '{"color": "red"}'
CONTINUES = StrandsAgentConfig({"change_background": ToolBehavior(continue_after_frontend_call=True)})
CALL_RED = tool_use("f1", "change_background", {"color": "red"})


def continuing() -> ScriptedModel:
    return ScriptedModel(calls(call("f1", "change_background", RED)), says("It will be red."), says("Fine."))


async def test_a_continuation_comes_after_its_call_and_the_clients_result() -> None:
    model = continuing()
    async with strands(agent_of(model), CONTINUES, tools=[TOOL]) as thread:
        await thread.say("red")
        assert await thread.run(tool_message("f1", "changed"), e.UserMessage(id="u2", content="thanks"))
    assert model.saw[2] == [
        said_user("red"),
        said_assistant(CALL_RED),
        said_user(tool_result("f1", "changed")),
        said_assistant("It will be red."),
        said_user("thanks"),
    ]


async def test_a_call_that_the_client_never_answers_was_handed_over_and_did_not_fail() -> None:
    model = continuing()
    async with strands(agent_of(model), CONTINUES, tools=[TOOL]) as thread:
        await thread.say("red")
        await thread.say("thanks")
    assert model.saw[2][2] == said_user(tool_result("f1", FORWARDED_RESULT))


async def test_a_late_result_is_kept_and_the_model_that_has_continued_is_not_called() -> None:
    model = continuing()
    async with strands(agent_of(model), CONTINUES, tools=[TOOL]) as thread:
        await thread.say("red")
        assert await thread.answer(f1="changed") == ["MS", "RF success"]
        assert len(model.saw) == 2
        await thread.say("thanks")
    assert model.saw[2][2] == said_user(tool_result("f1", "changed"))


async def test_two_continuing_calls_of_two_turns_are_two_messages() -> None:
    model = ScriptedModel(
        calls(call("f1", "change_background", RED)),
        calls(call("f2", "change_background", RED)),
        says("Done."),
        says("ok"),
    )
    async with strands(agent_of(model), CONTINUES, tools=[TOOL]) as thread:
        await thread.say("red, twice")
        await thread.say("thanks")
    assert [message["role"] for message in model.saw[3]] == ["user", "assistant"] * 3 + ["user"]


async def test_the_window_of_a_conversation_manager_limits_what_the_model_sees() -> None:
    """With a window of 6, the model got 23 messages."""
    model = ScriptedModel(script=lambda messages: says("ok"))
    manager = SlidingWindowConversationManager(window_size=6, should_truncate_results=False)
    async with strands(agent_of(model, conversation_manager=manager)) as thread:
        for number in range(12):
            await thread.say(f"message {number}")
    assert [len(seen) for seen in model.saw] == [1, 3, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7]
    assert model.saw[-1][-1] == said_user("message 11")


async def test_the_window_is_the_same_after_a_restart(tmp_path: Path) -> None:
    seen: list[int] = []
    for start in (0, 6):
        model = ScriptedModel(script=lambda messages: says("ok"))
        manager = SlidingWindowConversationManager(window_size=4)
        async with strands(agent_of(model, conversation_manager=manager), store=tmp_path / "s.db") as thread:
            thread.count = start
            for number in range(6):
                await thread.say(f"message {start + number}")
        seen += [len(messages) for messages in model.saw]
    assert seen == [1, 3] + [5] * 10


async def test_a_summary_replaces_the_messages_it_covers_also_after_a_restart(tmp_path: Path) -> None:
    def answer(messages: list[Any]) -> Any:
        if "summar" in str(messages[-1]).lower():
            return says("They talked about soup.")
        return [ContextWindowOverflowException("full")] if len(messages) > 9 else says("ok")

    for start in (0, 5):
        model = ScriptedModel(script=answer)
        manager = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2)
        async with strands(agent_of(model, conversation_manager=manager), store=tmp_path / "s.db") as thread:
            thread.count = start
            for number in range(5 if start == 0 else 1):
                assert (await thread.say(f"message {start + number}"))[-1] == "RF success"
        if start == 0:
            await_overflow = len(model.saw)
    assert await_overflow == 5
    assert len(model.saw[-1]) < 10


async def test_a_rewound_thread_shows_its_first_messages_again() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    manager = SlidingWindowConversationManager(window_size=2)
    async with strands(agent_of(model, conversation_manager=manager)) as thread:
        for number in range(4):
            await thread.say(f"message {number}")
        await thread.run(e.UserMessage(id="u1", content="message 0"))
    assert model.saw[-1] == [said_user("message 0")]


class _DropFirst(ConversationManager):
    """A manager of the user that keeps no count."""

    def apply_management(self, agent: Any, **options: Any) -> None:
        del agent.messages[:-2]

    def reduce_context(self, agent: Any, e: Exception | None = None, **options: Any) -> None:
        raise NotImplementedError


async def test_a_manager_of_the_user_decides_too() -> None:
    model = ScriptedModel(script=lambda messages: says("ok"))
    async with strands(agent_of(model, conversation_manager=_DropFirst())) as thread:
        for number in range(4):
            await thread.say(f"message {number}")
    assert [len(seen) for seen in model.saw] == [1, 3, 3, 3]


@tool
def now() -> str:
    """The time."""
    return "noon"


async def test_an_inner_agent_that_reuses_the_id_of_the_outer_call_is_shown() -> None:
    inner = ScriptedModel(calls(call("call_0", "now")), calls(call("call_0", "now")), says("It is noon."))
    helper = agent_of(inner, now, name="helper", description="Helps.")
    outer = ScriptedModel(calls(call("call_0", "helper", '{"input": "time?"}')), says("Noon."))
    async with strands(agent_of(outer, helper.as_tool(name="helper"))) as thread:
        stream = await thread.say("time?")
    starts = [line for line in stream if line.startswith(("CS", "CR"))]
    assert starts == [
        "CS call_0 helper < m1",
        "CS call_0::call_0 now < m2 @s1",
        'CR call_0::call_0 "noon" @s1',
        "CS call_0::call_0~2 now < m3 @s1",
        'CR call_0::call_0~2 "noon" @s1',
        'CR call_0 "It is noon.\\n"',
    ]
    assert 'TC m4 "It is noon." @s1' in stream


def two_calls() -> ScriptedModel:
    return ScriptedModel(calls(call("f1", "change_background", RED), call("f2", "change_background", RED)), says("ok"))


async def test_results_posted_one_by_one_are_kept_until_all_are_there() -> None:
    """The first of two results was refused with 422."""
    model = two_calls()
    async with strands(agent_of(model), tools=[TOOL]) as thread:
        assert (await thread.say("twice"))[-1] == "RF waits for f1 f2"
        assert await thread.answer(f2="two") == ["MS", "RF waits for f1"]
        assert len(model.saw) == 1
        assert (await thread.answer(f1="one"))[-1] == "RF success"
    assert model.saw[1][-1] == said_user(tool_result("f1", "one"), tool_result("f2", "two"))


async def test_results_posted_one_by_one_survive_a_restart(tmp_path: Path) -> None:
    model = two_calls()
    async with strands(agent_of(model), tools=[TOOL], store=tmp_path / "s.db") as thread:
        await thread.say("twice")
        await thread.answer(f2="two")
    async with strands(agent_of(model), tools=[TOOL], store=tmp_path / "s.db") as thread:
        assert (await thread.answer(f1="one"))[-1] == "RF success"
    assert model.saw[1][-1] == said_user(tool_result("f1", "one"), tool_result("f2", "two"))


@pytest.mark.parametrize("is_complete", [False, True])
async def test_without_a_server_the_model_waits_for_all_results_too(is_complete: bool) -> None:
    model = two_calls()
    agent = StrandsAgent(agent_of(model))
    function = e.FunctionCall(name="change_background", arguments=RED)
    made = [e.ToolCall(id=call_id, function=function) for call_id in ("f1", "f2")]
    user, asked = e.UserMessage(id="u1", content="twice"), e.AssistantMessage(id="a1", tool_calls=made)
    results = [tool_message("f1", "one"), tool_message("f2", "two")] if is_complete else [tool_message("f1", "one")]
    await _run(agent, user)
    last = (await _run(agent, user, asked, *results))[-1]
    assert isinstance(last, ag.RunFinishedEvent)
    assert isinstance(last.outcome, ag.RunFinishedSuccessOutcome)
    assert last.outcome.pending_tool_call_ids == (None if is_complete else ["f2"])
    assert len(model.saw) == 1 + is_complete


async def _run(agent: StrandsAgent, *messages: e.Message) -> list[Any]:
    run_input = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=list(messages), tools=[TOOL]))
    with unless_hung():
        return [event async for event in agent.run(run_input)]
