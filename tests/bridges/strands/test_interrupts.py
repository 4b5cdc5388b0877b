"""Interrupts: raised by a tool, or before one runs (cases A14 and A15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent

from ambient_runner.bridges.strands import instrumentation
from ambient_runner.bridges.strands.config import StrandsAgentConfig, ToolBehavior
from ambient_runner.errors import InterruptNotOpen, PendingInterrupts
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    said_assistant,
    said_user,
    says,
    thought,
    tool_result,
    tool_use,
)
from tests.bridges.strands.world import TOOL, agent_of, no, strands, yes
from tests.world import SETTINGS


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Books a trip after asking."""
    answer = tool_context.interrupt("confirm", reason={"city": city})
    return f"booked {city}: {answer!r}"


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


BOOK = call("tu1", "book", '{"city": "Rome"}')
WEATHER = call("tu2", "get_weather", '{"city": "Rome"}')
ASKED = [
    said_user("go"),
    said_assistant(tool_use("tu1", "book", {"city": "Rome"}), tool_use("tu2", "get_weather", {"city": "Rome"})),
]


async def test_a_tool_raises_an_interrupt_after_its_siblings_finished_and_the_answer_continues_it() -> None:
    model = ScriptedModel(calls(BOOK, WEATHER), says("Done."))
    async with strands(agent_of(model, book, get_weather)) as thread:
        assert await thread.say("go") == [
            "CS tu1 book < m1",
            'CA tu1 {"city": "Rome"}',
            "CE tu1",
            "CS tu2 get_weather < m1",
            'CA tu2 {"city": "Rome"}',
            "CE tu2",
            'CR tu2 "sunny in Rome"',
            "MS",
            "MS",
            "RF asks confirm",
        ]
        (interrupt,) = thread.interrupts
        assert (interrupt.tool_call_id, interrupt.metadata) == (
            "tu1",
            {"tool_name": "book", "tool_input": {"city": "Rome"}, "reason": {"city": "Rome"}},
        )
        assert await thread.resume(yes(interrupt, {"sure": True})) == [
            "CR tu1 \"booked Rome: {'sure': True}\"",
            "MS",
            "TS m1",
            'TC m1 "Done."',
            "TE m1",
            "MS",
            "RF success",
        ]
    results = said_user(tool_result("tu2", "sunny in Rome"), tool_result("tu1", "booked Rome: {'sure': True}"))
    assert model.saw == [ASKED[:1], [*ASKED, results]]


async def test_an_answer_finds_its_interrupt_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(calls(thought("Hm.", signature="sig"), BOOK, WEATHER), says("Done."), says("Bye."))
    store = tmp_path / "ledger.db"
    async with strands(agent_of(model, book, get_weather), store=store) as thread:
        await thread.say("go")
        (interrupt,) = thread.interrupts
    async with strands(agent_of(model, book, get_weather), store=store) as thread:
        assert (await thread.resume(yes(interrupt, "yes")))[0] == "CR tu1 \"booked Rome: 'yes'\""
    async with strands(agent_of(model, book, get_weather), store=store) as thread:
        thread.count = 1
        await thread.say("thanks")
    signed = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    assert model.saw[1][1]["content"] == [signed, *ASKED[1]["content"]]
    assert model.saw[2] == [
        *ASKED,
        said_user(tool_result("tu1", "booked Rome: 'yes'"), tool_result("tu2", "sunny in Rome")),
        said_assistant("Done."),
        said_user("thanks"),
    ]


async def test_where_the_sdk_reports_it_late_a_siblings_result_comes_with_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instrumentation, "_agent_stream_stage", lambda: None)
    model = ScriptedModel(calls(BOOK, WEATHER), says("Done."))
    async with strands(agent_of(model, book, get_weather)) as thread:
        assert not any(word.startswith("CR") for word in await thread.say("go"))
        stream = await thread.resume(yes(thread.interrupts[0], 1))
    assert stream[:4] == ['CR tu2 "sunny in Rome"', "MS", 'CR tu1 "booked Rome: 1"', "MS"]


async def test_the_tool_is_informed_of_a_cancelled_interrupt() -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book)) as thread:
        await thread.say("go")
        stream = await thread.resume(no(thread.interrupts[0]))
    assert stream[0] == "CR tu1 \"booked Rome: {'cancelled': True}\""


@pytest.mark.parametrize(("payload", "seen"), [(False, "False"), (0, "0"), ("", "''"), ([], "[]"), (None, "{}")])
async def test_a_falsy_answer_is_an_answer(payload: Any, seen: str) -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book)) as thread:
        await thread.say("go")
        stream = await thread.resume(yes(thread.interrupts[0], payload))
    assert (stream[0], stream[-1]) == (f'CR tu1 "booked Rome: {seen}"', "RF success")


async def test_a_reason_that_is_not_json_is_shown_as_its_type_name() -> None:
    @tool(context=True)
    def choose(tool_context: ToolContext) -> str:
        """Asks for a colour."""
        return str(tool_context.interrupt("colour", {"of": object()}))

    model = ScriptedModel(calls(call("tu1", "choose")), says("ok"))
    async with strands(agent_of(model, choose)) as thread:
        await thread.say("go")
        interrupt = thread.interrupts[0]
        stream = await thread.resume(yes(interrupt, "red"))
    assert (interrupt.metadata or {})["reason"] == {"of": "<object>"}
    assert (stream[0], stream[-1]) == ('CR tu1 "red"', "RF success")


async def test_nothing_else_is_taken_while_an_interrupt_is_open() -> None:
    model = ScriptedModel(calls(BOOK, call("tu2", "book", '{"city": "Oslo"}')), says("ok"))
    async with strands(agent_of(model, book)) as thread:
        assert (await thread.say("go"))[-1] == "RF asks confirm confirm"
        first, second = thread.interrupts
        with pytest.raises(PendingInterrupts):
            await thread.say("hello?")
        with pytest.raises(PendingInterrupts):
            await thread.resume(yes(first, 1))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(e.ResumeEntry(interrupt_id="wrong", status="resolved"))
        answered = await thread.resume(yes(first, 1), yes(second, 2))
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(first, 1), yes(second, 2))
    assert sorted(word for word in answered if word.startswith("CR")) == [
        'CR tu1 "booked Rome: 1"',
        'CR tu2 "booked Oslo: 2"',
    ]
    assert len(model.saw) == 2


async def test_an_expired_interrupt_can_only_be_cancelled() -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book), StrandsAgentConfig(interrupt_timeout=0)) as thread:
        await thread.say("go")
        with pytest.raises(InterruptNotOpen):
            await thread.resume(yes(thread.interrupts[0], 1))
        assert (await thread.resume(no(thread.interrupts[0])))[-1] == "RF success"


async def test_a_new_message_after_an_expired_interrupt_abandons_the_call() -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book), StrandsAgentConfig(interrupt_timeout=0)) as thread:
        await thread.say("go")
        assert (await thread.say("forget it"))[-1] == "RF success"
    (given_up, words) = model.saw[1][2]["content"]
    assert (given_up["toolResult"]["status"], words) == ("error", {"text": "forget it"})


async def test_a_message_sent_with_the_answer_reaches_the_model() -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book)) as thread:
        await thread.say("go")
        entries = [yes(thread.interrupts[0], 1)]
        await thread.say("but hurry", resume=entries)
    assert model.saw[1][-1] == said_user(tool_result("tu1", "booked Rome: 1"), "but hurry")


async def test_a_tool_may_ask_again() -> None:
    @tool(context=True)
    def twice(tool_context: ToolContext) -> str:
        """Asks two questions, one after the other."""
        return f"{tool_context.interrupt('one')} {tool_context.interrupt('two')}"

    model = ScriptedModel(calls(call("tu1", "twice")), says("ok"))
    async with strands(agent_of(model, twice)) as thread:
        assert (await thread.say("go"))[-1] == "RF asks one"
        assert await thread.resume(yes(thread.interrupts[0], "a")) == ["MS", "RF asks two"]
        assert (await thread.resume(yes(thread.interrupts[0], "b")))[0] == 'CR tu1 "a b"'


async def test_an_interrupt_and_a_frontend_call_in_one_turn_are_answered_one_after_the_other() -> None:
    model = ScriptedModel(calls(BOOK, call("f1", "change_background", "{}"), WEATHER), says("ok"))
    async with strands(agent_of(model, book, get_weather), tools=[TOOL]) as thread:
        assert (await thread.say("go"))[-5:] == ['CR tu2 "sunny in Rome"', "MS", "CE f1", "MS", "RF asks confirm"]
        assert await thread.resume(yes(thread.interrupts[0], 1)) == [
            'CR tu1 "booked Rome: 1"',
            "MS",
            "MS",
            "RF waits for f1",
        ]
        assert len(model.saw) == 1
        assert (await thread.answer(f1="red"))[-1] == "RF success"
    assert model.saw[1][-1] == said_user(
        tool_result("tu1", "booked Rome: 1"), tool_result("f1", "red"), tool_result("tu2", "sunny in Rome")
    )


async def test_a_hook_of_the_users_may_ask() -> None:
    def ask_first(event: BeforeToolCallEvent) -> None:
        if event.interrupt("hook", reason="really?") != "yes":
            event.cancel_tool = "no"

    def make() -> Agent:
        return agent_of(model, get_weather, hooks=[ask_first])

    model = ScriptedModel(calls(WEATHER), says("ok"))
    async with strands(make()) as thread:
        assert (await thread.say("go"))[-1] == "RF asks hook"
        assert thread.interrupts[0].message == "really?"
        assert (await thread.resume(yes(thread.interrupts[0], "yes")))[0] == 'CR tu2 "sunny in Rome"'


APPROVED = StrandsAgentConfig(tool_behaviors={"get_weather": ToolBehavior(interrupt_on_call=True)})


async def test_a_call_can_wait_for_approval() -> None:
    model = ScriptedModel(calls(WEATHER), says("ok"))
    async with strands(agent_of(model, get_weather), APPROVED) as thread:
        assert (await thread.say("go"))[-1] == "RF asks tool_call"
        (interrupt,) = thread.interrupts
        assert (interrupt.message, interrupt.tool_call_id, interrupt.response_schema, interrupt.metadata) == (
            "Approve the call to get_weather?",
            "tu2",
            {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
            {"tool_name": "get_weather", "tool_input": {"city": "Rome"}},
        )
        assert (await thread.resume(yes(interrupt, {"approved": True})))[0] == 'CR tu2 "sunny in Rome"'


@pytest.mark.parametrize(
    "answer", [{"approved": False}, {"approved": "true"}, "yes", 1, None, [], {}, "cancelled"], ids=repr
)
async def test_everything_except_an_explicit_approval_declines(answer: Any) -> None:
    model = ScriptedModel(calls(WEATHER), says("Then not."))
    async with strands(agent_of(model, get_weather), APPROVED) as thread:
        await thread.say("go")
        (interrupt,) = thread.interrupts
        stream = await thread.resume(no(interrupt) if answer == "cancelled" else yes(interrupt, answer))
    assert stream[0] == 'CR tu2 "The user declined this call." error'
    assert model.saw[1][-1] == said_user(tool_result("tu2", "The user declined this call.", status="error"))


async def test_a_stored_interrupt_is_never_sent_to_a_client() -> None:
    model = ScriptedModel(calls(BOOK), says("ok"))
    async with strands(agent_of(model, book), settings=SETTINGS) as thread:
        await thread.say("go")
    assert not any("assistant_message" in repr(event) for event in thread.events)
