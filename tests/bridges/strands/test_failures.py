"""Whatever fails, the stream is whole and says little (cases A16, A22 and A23)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from strands import Agent, tool
from strands.event_loop._retry import ModelRetryStrategy
from strands.hooks import AfterToolsEvent, BeforeModelCallEvent
from strands.types.exceptions import ModelThrottledException

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.errors import NoUserMessage
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.strands.scripted import ScriptedModel, Turn, call, calls, says, text, thought
from tests.bridges.strands.world import TOOL, agent_of, strands
from tests.world import KEY

BROKEN = RuntimeError("cannot reach db.internal with sk-live-0123456789")


@tool
def now() -> str:
    """The time."""
    return "noon"


def cut_off(*blocks: Turn) -> Turn:
    """A turn that fails after these blocks, the last of which is not closed."""
    steps = [step for block in blocks for step in block]
    return [{"messageStart": {"role": "assistant"}}, *steps[:-1], BROKEN]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([BROKEN], []),
        (cut_off(text("Well, ")), ["TS m1", 'TC m1 "Well, "', "TE m1"]),
        (cut_off(thought("Hm")), ["ZS z1", "ZMS z1", 'ZMC z1 "Hm"', "ZME z1", "ZE z1"]),
        (
            cut_off(text("a"), call("c1", "now", "{")),
            ["TS m1", 'TC m1 "a"', "TE m1", "CS c1 now < m1", "CA c1 {", "CE c1"],
        ),
        (cut_off(call("f1", "change_background", "{")), ["CS f1 change_background < m1", "CA f1 {", "CE f1"]),
    ],
    ids=["at once", "in text", "in reasoning", "in a call", "in a frontend call"],
)
async def test_a_model_that_fails_leaves_a_closed_stream_and_a_usable_thread(script: Turn, expected: list[str]) -> None:
    model = ScriptedModel(script, says("Better."))
    async with strands(agent_of(model, now), tools=[TOOL]) as thread:
        words = await thread.say("go")
        assert words == expected
        assert await ending(thread) == "strands_force_stop"
        assert (await thread.say("again"))[-1] == "RF success"
    assert model.saw[1][-1]["content"][-1] == {"text": "again"}


@tool
def end_it() -> str:
    """Ends the process, as a command-line program does that is called as a tool."""
    sys.exit(3)


async def test_a_tool_that_would_end_the_process_has_failed_and_the_model_continues() -> None:
    model = ScriptedModel(calls(call("c1", "end_it")), says("On."))
    async with strands(agent_of(model, end_it)) as thread:
        assert (await thread.say("go"))[-1] == "RF success"
    result = model.saw[1][-1]["content"][0]["toolResult"]
    assert (result["toolUseId"], result["status"]) == ("c1", "error")


async def test_too_many_tokens_have_their_own_code() -> None:
    model = ScriptedModel(says("Once upon a", stop="max_tokens"), says("ok"))
    async with strands(agent_of(model)) as thread:
        assert await thread.say("go") == ["TS m1", 'TC m1 "Once upon a"', "TE m1"]
        assert await ending(thread) == "max_tokens"
        assert (await thread.say("shorter"))[-1] == "RF success"


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
async def test_a_guardrail_is_reported(reason: str) -> None:
    async with strands(agent_of(ScriptedModel(says("No.", stop=reason)))) as thread:
        assert (await thread.say("go"))[-3:] == [
            f'CUSTOM AgentStopped {{"stop_reason": "{reason}"}}',
            "MS",
            "RF success",
        ]


async def test_the_text_of_a_hook_instead_of_the_model_is_sent() -> None:
    def deny(event: BeforeModelCallEvent) -> None:
        event.cancel = "Not today."

    model = ScriptedModel()
    async with strands(agent_of(model, hooks=[deny])) as thread:
        assert await thread.say("go") == ["TS m1", 'TC m1 "Not today."', "TE m1", "MS", "RF success"]
    assert model.saw == []


async def test_the_text_of_a_hook_after_the_tools_ends_the_run() -> None:
    def enough(event: AfterToolsEvent) -> None:
        event.end_turn = "That is all."

    model = ScriptedModel(calls(text("Look:"), call("c1", "now")))
    async with strands(agent_of(model, now, hooks=[enough])) as thread:
        stream = await thread.say("go")
    assert stream[-5:] == ["TS m2", 'TC m2 "That is all."', "TE m2", "MS", "RF success"]


async def test_a_throttled_model_is_called_again_and_the_client_sees_one_answer() -> None:
    model = ScriptedModel([ModelThrottledException("slow down")], says("ok"))
    patient = ModelRetryStrategy(max_attempts=2, initial_delay=0, max_delay=0)
    async with strands(agent_of(model, retry_strategy=patient)) as thread:
        assert await thread.say("go") == ["TS m1", 'TC m1 "ok"', "TE m1", "MS", "RF success"]


async def test_text_before_a_throttle_is_a_separate_message() -> None:
    model = ScriptedModel([*says("Well", ", ")[:4], ModelThrottledException("slow down")], says("Yes", "."))
    patient = ModelRetryStrategy(max_attempts=2, initial_delay=0, max_delay=0)
    async with strands(agent_of(model, retry_strategy=patient)) as thread:
        stream = await thread.say("go")
    assert stream[:8] == ["TS m1", 'TC m1 "Well"', 'TC m1 ", "', "TE m1", "TS m2", 'TC m2 "Yes"', 'TC m2 "."', "TE m2"]


async def test_a_model_that_is_throttled_in_the_middle_of_a_call_leaves_no_open_call() -> None:
    begun = [*cut_off(call("c1", "now", '{"a'))[:-1], ModelThrottledException("slow down")]
    model = ScriptedModel(begun, calls(call("c2", "now")), says("noon"))
    patient = ModelRetryStrategy(max_attempts=2, initial_delay=0, max_delay=0)
    async with strands(agent_of(model, now, retry_strategy=patient)) as thread:
        assert (await thread.say("go"))[:5] == [
            "CS c1 now < m1",
            'CA c1 {"a',
            "CE c1",
            "CS c2 now < m1",
            "CE c2",
        ]


async def test_a_limit_of_turns_ends_the_run_and_is_reported() -> None:
    model = ScriptedModel(script=lambda messages: calls(call(f"c{len(messages)}", "now")))
    async with strands(agent_of(model, now), StrandsAgentConfig(max_turns=2)) as thread:
        stream = await thread.say("go")
    assert stream[-3:] == ['CUSTOM AgentStopped {"stop_reason": "limit_turns"}', "MS", "RF success"]
    assert len(model.saw) == 2


async def test_a_value_that_cannot_be_encoded_ends_the_run_with_its_own_code() -> None:
    behavior = ToolBehavior(custom_result_handler=lambda context: [e.Custom(name="mine", value=object())])
    model = ScriptedModel(calls(text("a"), call("c1", "now")), says("ok"))
    async with strands(agent_of(model, now), StrandsAgentConfig(tool_behaviors={"now": behavior})) as thread:
        assert (await thread.say("go"))[-2:] == ['CR c1 "noon"', "MS"]
        assert await ending(thread) == "ENCODING_ERROR"


async def test_the_agent_object_is_never_sent() -> None:
    model = ScriptedModel(calls(thought("Hm."), text("a"), call("c1", "now", "{}")), says("ok"))
    agent = Agent(model=model, tools=[now], callback_handler=None, system_prompt="SECRET PROMPT")
    async with strands(agent) as thread:
        await thread.say("go")
    assert not any(isinstance(event, e.Raw) or event.raw_event is not None for event in thread.events)
    assert not any(word in repr(thread.events) for word in ("SECRET PROMPT", "event_loop", "strands.agent", "scripted"))
    assert model.prompts == ["SECRET PROMPT", "SECRET PROMPT"]


async def test_a_failure_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with strands(agent_of(ScriptedModel([BROKEN]))) as thread:
        with caplog.at_level(logging.ERROR):
            await thread.say("go")
    assert "db.internal" in caplog.text


async def test_an_error_of_ours_is_not_its_own_cause() -> None:
    """Regression: following the causes of such an exception never ended."""
    adapter = StrandsBridge(agent_of(ScriptedModel())).create_adapter(PlatformContext())
    nothing = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=[]))
    with pytest.raises(NoUserMessage) as caught:
        async for _ in adapter.run(nothing):
            pass
    assert caught.value.__cause__ is None


async def ending(thread: Any) -> str | None:
    """The code the run ended with, as it is stored."""
    end = (await thread.runner.view_thread(KEY)).last_run.terminal
    assert isinstance(end, e.RunError)
    assert "sk-live" not in end.message
    return end.code
