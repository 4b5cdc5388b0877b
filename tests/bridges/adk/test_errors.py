"""A failure ends the run once, with everything closed, and without a word of the exception (D7)."""

from __future__ import annotations

import pytest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.errors import NoUserMessage
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.adk.scripted import HANG, call, piece, reply, text
from tests.bridges.adk.world import agent, short, talking
from tests.world import user

SECRET = "the password is hunter22"


def boom() -> None:
    """Fail."""
    raise ValueError(SECRET)


async def test_a_tool_that_raises_ends_the_run_and_not_the_thread() -> None:
    root, model = agent(["Let me ", call("boom", "b1")], ["Fine."], tools=[boom])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        assert short(events) == [
            "RS",
            "TS m1",
            "TC Let me ",
            "TE",
            "CS b1 boom",
            "CA b1 {}",
            "CE b1",
            "RE adk_error",
        ]
        assert SECRET not in repr(events)
        assert await talk.say("u2", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw == [[("user", "hi")], [("user", "hi"), ("model", "Let me "), ("user", "again")]]


async def test_a_model_that_raises_in_the_middle_of_its_text_has_it_ended() -> None:
    root, model = agent([piece(text("One")), RuntimeError(SECRET)], ["Fine."])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        assert short(events) == ["RS", "TS m1", "TC One", "TE", "RE adk_error"]
        assert SECRET not in repr(events)
        assert await talk.say("u2", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw == [[("user", "hi")], [("user", "hi"), ("model", "One"), ("user", "again")]]


async def test_a_model_that_raises_at_once_can_be_called_again() -> None:
    root, model = agent(RuntimeError(SECRET), ["Fine."])
    async with talking(root) as talk:
        assert await talk.say("u1") == ["RS", "RE adk_error"]
        assert await talk.say("u1") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw == [[("user", "hi")], [("user", "hi")]]


async def test_a_model_that_refuses_is_an_error_with_its_code() -> None:
    root, model = agent([LlmResponse(error_code="SAFETY", error_message=SECRET)], ["Fine."])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        assert short(events) == ["RS", "RE SAFETY"]
        assert SECRET not in repr(events)
        assert await talk.say("u2", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw == [[("user", "hi")], [("user", "hi"), ("user", "again")]]


async def test_a_truncated_answer_reports_its_finish_reason() -> None:
    cut = reply(text("Once upon a"), finish_reason=types.FinishReason.MAX_TOKENS)
    root, model = agent([piece(text("Once upon a")), cut])
    async with talking(root) as talk:
        assert await talk.say("u1") == [
            "RS",
            "TS m1",
            "TC Once upon ",
            "TC a",
            "TE",
            "X adk:finish_reason MAX_TOKENS",
            "RF",
        ]
    assert model.saw == [[("user", "hi")]]


async def test_an_error_of_ours_is_not_its_own_cause() -> None:
    """Regression: following the causes of such an exception never ended."""
    root, _ = agent()
    nothing = input_to_agui(e.RunAgentInput(thread_id="t", run_id="r", messages=[]))
    with pytest.raises(NoUserMessage) as caught:
        async for _ in ADKBridge(root).create_adapter(PlatformContext()).run(nothing):
            pass
    assert caught.value.__cause__ is None


async def test_an_unknown_tool_is_answered_and_the_model_continues() -> None:
    root, model = agent([call("nothing", "n1")], ["Sorry."], tools=[boom])
    async with talking(root) as talk:
        words = await talk.say("u1")
    [expected] = [word for word in words if word.startswith("CR n1 ")]
    assert words == ["RS", "CS n1 nothing", "CA n1 {}", "CE n1", expected, "TS m1", "TC Sorry.", "TE", "RF"]
    assert expected.endswith(" failed")
    assert model.saw[0] == [("user", "hi")]
    assert model.saw[1][:2] == [("user", "hi"), ("model", ("call", "nothing", {}))]
    [(role, (kind, name, received))] = model.saw[1][2:]
    assert (role, kind, name, list(received)) == ("user", "result", "nothing", ["error"])


@pytest.mark.parametrize("script", [[HANG], [piece(text("One ")), HANG]], ids=["silent", "talking"])
async def test_a_stop_ends_a_model_that_hangs_and_the_thread_continues(script: list[object]) -> None:
    root, model = agent(script, ["Fine."])
    async with talking(root) as talk:
        started = await talk.begin(user("u1"), until=e.TextMessageContent if len(script) > 1 else None)
        await model.wait_for_calls()
        events = await talk.stop(started)
        expected = ["TS m1", "TC One ", "TE"] if len(script) > 1 else []
        assert short(events) == ["RS", *expected, "RF cancelled"]
        assert await talk.say("u2", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    words = [("model", "One ")] if expected else []
    assert model.saw == [[("user", "hi")], [("user", "hi"), *words, ("user", "again")]]
