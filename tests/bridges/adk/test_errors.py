"""What goes wrong ends the run once, with everything closed, and without a word of the exception (D7)."""

from __future__ import annotations

import anyio
import pytest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from ambient_runner.protocol import events as e
from tests.bridges.adk.scripted import HANG, call, piece, reply, text
from tests.bridges.adk.world import agent, check, short, talking
from tests.world import KEY, events_of, request, user

SECRET = "the password is hunter22"


def boom() -> None:
    """Fail."""
    raise ValueError(SECRET)


async def test_d7_a_tool_that_raises() -> None:
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
            "RE agent_error",
        ]
        assert SECRET not in repr(events)
        assert await talk.say("u2", "again") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw[1] == [("user", "hi"), ("model", "Let me "), ("user", "again")]


async def test_d7_a_model_that_raises_in_the_middle_of_its_text() -> None:
    root, model = agent([piece(text("One")), RuntimeError(SECRET)], ["Fine."])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        assert short(events) == ["RS", "TS m1", "TC One", "TE", "RE agent_error"]
        assert SECRET not in repr(events)
        await talk.say("u2", "again")
    assert model.saw[1] == [("user", "hi"), ("model", "One"), ("user", "again")]


async def test_d7_a_model_that_raises_at_once_can_be_asked_again() -> None:
    root, model = agent(RuntimeError(SECRET), ["Fine."])
    async with talking(root) as talk:
        assert await talk.say("u1") == ["RS", "RE agent_error"]
        assert await talk.say("u1") == ["RS", "TS m1", "TC Fine.", "TE", "RF"]
    assert model.saw[1] == [("user", "hi")]


async def test_d7_a_model_that_refuses_is_an_error_with_its_code() -> None:
    root, model = agent([LlmResponse(error_code="SAFETY", error_message=SECRET)], ["Fine."])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
        assert short(events) == ["RS", "RE SAFETY"]
        assert SECRET not in repr(events)
        assert (await talk.say("u2", "again"))[-1] == "RF"
    assert model.saw[1] == [("user", "hi"), ("user", "again")]


async def test_d7_an_answer_that_was_cut_off_says_why() -> None:
    cut = reply(text("Once upon a"), finish_reason=types.FinishReason.MAX_TOKENS)
    root, model = agent([piece(text("Once upon a")), cut])
    async with talking(root) as talk:
        assert await talk.say("u1") == ["RS", "TS m1", "TC Once upon a", "TE", "X adk:finish_reason MAX_TOKENS", "RF"]
    assert model.calls == 1


async def test_an_unknown_tool_is_answered_and_the_model_goes_on() -> None:
    root, model = agent([call("nothing", "n1")], ["Sorry."], tools=[boom])
    async with talking(root) as talk:
        events = await talk.run(user("u1"))
    result = next(event for event in events if isinstance(event, e.ToolCallResult))
    assert result.metadata == {"isError": True}
    assert short(events)[-4:] == ["TS m1", "TC Sorry.", "TE", "RF"]
    assert model.calls == 2


@pytest.mark.parametrize("script", [[HANG], [piece(text("One")), HANG]], ids=["silent", "talking"])
async def test_d7_a_stop_ends_a_model_that_hangs_and_the_thread_goes_on(script: list[object]) -> None:
    root, model = agent(script, ["Fine."])
    async with talking(root) as talk:
        started = await talk.runner.start(request(user("u1")))
        with anyio.fail_after(5):
            while model.calls == 0:
                await anyio.sleep(0.001)
            await talk.runner.stop(KEY)
            events = await events_of(talk.runner, started)
        check(events)
        assert short(events)[-1] == "RF cancelled"
        assert (await talk.say("u2", "again"))[-4:] == ["TS m1", "TC Fine.", "TE", "RF"]
    said = [("model", "One")] if len(script) > 1 and "TC One" in short(events) else []
    assert model.saw[1] == [("user", "hi"), *said, ("user", "again")]
