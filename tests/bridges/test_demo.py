from __future__ import annotations

import json
from collections import Counter
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformContext
from ambient_runner.bridges.demo import COMMANDS, DemoAdapter, DemoBridge
from ambient_runner.errors import RunInterrupted
from ambient_runner.protocol import events as ev
from ambient_runner.protocol.verify import Verifier
from tests.machine_speed import unless_hung
from tests.world import structs_of


def counting_ids() -> Any:
    seen: Counter[str] = Counter()

    def new_id(kind: str) -> str:
        seen[kind] += 1
        return f"{kind}-{seen[kind]}"

    return new_id


def adapter() -> DemoAdapter:
    return DemoBridge(new_id=counting_ids()).create_adapter(PlatformContext())


def input_of(text: Any, **more: Any) -> RunAgentInput:
    messages = [{"id": "u1", "role": "user", "content": text}, *more.pop("then", [])]
    body = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": [], **more}
    return RunAgentInput.model_validate(body)


async def collect(into: list[ev.Event], run: RunAgentInput) -> None:
    """Also when the run raises, what came before is kept."""
    with unless_hung():
        async for event in structs_of(adapter().run(run)):
            into.append(event)  # noqa: PERF401


async def events_of(run: RunAgentInput) -> list[ev.Event]:
    events: list[ev.Event] = []
    await collect(events, run)
    return events


def text_of(events: list[ev.Event]) -> str:
    return "".join(deltas(events))


def deltas(events: list[ev.Event]) -> list[str]:
    return [event.delta for event in events if isinstance(event, ev.TextMessageContent)]


def types(events: list[ev.Event]) -> list[str]:
    return [ev.type_of(event) for event in events]


async def test_counting_is_one_message_with_a_delta_per_number() -> None:
    assert await events_of(input_of("count 3")) == [
        ev.TextMessageStart(message_id="message-1", role="assistant"),
        ev.TextMessageContent(message_id="message-1", delta="1 "),
        ev.TextMessageContent(message_id="message-1", delta="2 "),
        ev.TextMessageContent(message_id="message-1", delta="3 "),
        ev.TextMessageEnd(message_id="message-1"),
    ]


async def test_paced_counting_yields_the_same_events() -> None:
    assert await events_of(input_of("count 3 every 1ms")) == await events_of(input_of("count 3"))


@pytest.mark.parametrize("text", ["count", "count 0", "count 1000001", "count many", "count 3 every day"])
async def test_a_number_that_cannot_be_counted_to_is_explained(text: str) -> None:
    assert "1,000,000" in text_of(await events_of(input_of(text)))


async def test_a_whole_command_needs_no_trip_to_the_loop() -> None:
    """The benchmark depends on it: unpaced counting never waits."""
    run = structs_of(adapter().run(input_of("count 100000")))
    stepped = 0
    while True:
        try:
            run.__anext__().send(None)
        except StopIteration:
            stepped += 1
        except StopAsyncIteration:
            break
    assert stepped == 100_002


async def test_thinking_comes_before_the_answer() -> None:
    events = await events_of(input_of("think"))
    kinds = types(events)
    assert kinds[:2] == ["REASONING_START", "REASONING_MESSAGE_START"]
    assert kinds.index("REASONING_END") < kinds.index("TEXT_MESSAGE_START")
    assert kinds[-1] == "TEXT_MESSAGE_END"


async def test_the_weather_is_a_tool_call_with_a_result_then_text() -> None:
    events = await events_of(input_of("weather São Paulo"))
    arguments = "".join(event.delta for event in events if isinstance(event, ev.ToolCallArgs))
    [result] = [event for event in events if isinstance(event, ev.ToolCallResult)]
    assert json.loads(arguments) == {"city": "São Paulo"}
    assert isinstance(result.content, str)
    report = json.loads(result.content)
    assert report["city"] == "São Paulo"
    assert text_of(events) == f"It is {report['sky']} in São Paulo, {report['celsius']} degrees."
    assert types(events).count("TOOL_CALL_ARGS") > 1


async def test_the_weather_does_not_change() -> None:
    assert await events_of(input_of("weather Oslo")) == await events_of(input_of("weather Oslo"))


COLOR_TOOL = {"name": "change_background", "description": "Paint.", "parameters": {}}


async def test_a_frontend_tool_is_called_and_left_to_the_client() -> None:
    events = await events_of(input_of("color red", tools=[COLOR_TOOL]))
    assert [kind for kind in types(events) if kind.startswith("TOOL")][-1] == "TOOL_CALL_END"
    assert "TOOL_CALL_RESULT" not in types(events)
    arguments = "".join(event.delta for event in events if isinstance(event, ev.ToolCallArgs))
    assert json.loads(arguments) == {"background": "red"}


async def test_a_client_without_the_tool_gets_a_message_that_says_so() -> None:
    events = await events_of(input_of("color red"))
    assert set(types(events)) == {"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"}
    assert "change_background" in text_of(events)


async def test_the_result_of_a_frontend_tool_is_mentioned() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "change_background", "arguments": "{}"}}
    then = [
        {"id": "a1", "role": "assistant", "toolCalls": [call]},
        {"id": "x1", "role": "tool", "toolCallId": "c1", "content": "it is red now"},
    ]
    assert "it is red now" in text_of(await events_of(input_of("color red", tools=[COLOR_TOOL], then=then)))


async def test_an_approval_ends_the_run_with_one_interrupt() -> None:
    events: list[ev.Event] = []
    with pytest.raises(RunInterrupted) as parked:
        await collect(events, input_of("approve deploy it"))
    assert types(events)[-1] == "TEXT_MESSAGE_END"
    [interrupt] = parked.value.interrupts
    assert interrupt == ev.Interrupt(
        id="interrupt-1",
        reason="confirmation",
        message="May I deploy it?",
        response_schema={
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
            "required": ["approved"],
        },
    )


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "Approved: I may deploy it."),
        (
            {"status": "resolved", "payload": {"approved": True, "comment": "fast"}},
            "Approved: I may deploy it. You said: fast",
        ),
        ({"status": "resolved", "payload": {"approved": False}}, "Declined: I will not deploy it."),
        ({"status": "resolved", "payload": "yes"}, "Declined: I will not deploy it."),
        ({"status": "resolved"}, "Declined: I will not deploy it."),
        ({"status": "cancelled"}, "Cancelled: I will not deploy it."),
    ],
)
async def test_a_resumed_run_reports_the_decision(entry: dict[str, Any], answer: str) -> None:
    resume = [{"interruptId": "interrupt-1", **entry}]
    assert text_of(await events_of(input_of("approve deploy it", resume=resume))) == answer


async def test_state_is_a_snapshot_and_then_patches_and_keeps_what_was_there() -> None:
    events = await events_of(input_of("state", state={"mine": 1}))
    [snapshot] = [event for event in events if isinstance(event, ev.StateSnapshot)]
    undone = [{"task": task, "done": False} for task in ("mix", "bake", "serve")]
    assert snapshot.snapshot == {"mine": 1, "plan": undone}
    assert [event.delta for event in events if isinstance(event, ev.StateDelta)] == [
        [{"op": "replace", "path": f"/plan/{at}/done", "value": True}] for at in range(3)
    ]


async def test_an_echo_has_one_word_per_delta_with_its_whitespace() -> None:
    assert deltas(await events_of(input_of("say  two  words\n"))) == [" two", "  words", "\n"]


async def test_a_split_echo_is_three_characters_per_delta() -> None:
    assert deltas(await events_of(input_of("split abc defg"))) == ["abc", " de", "fg"]


async def test_the_text_of_a_message_in_parts_is_read() -> None:
    parts = [{"type": "text", "text": "say one "}, {"type": "text", "text": "two"}]
    assert text_of(await events_of(input_of(parts))) == "one two"


async def test_two_calls_run_side_by_side_each_with_its_result() -> None:
    events = await events_of(input_of("two"))
    kinds = [kind for kind in types(events) if kind.startswith("TOOL")]
    assert kinds[:2] == ["TOOL_CALL_START", "TOOL_CALL_START"]
    started = [event.tool_call_id for event in events if isinstance(event, ev.ToolCallStart)]
    answered = [event.tool_call_id for event in events if isinstance(event, ev.ToolCallResult)]
    assert sorted(started) == sorted(answered)
    assert types(events)[-1] == "TEXT_MESSAGE_END"


async def test_steps_hold_their_text() -> None:
    events = await events_of(input_of("steps"))
    marks = [event for event in events if isinstance(event, ev.StepStarted | ev.StepFinished)]
    assert marks == [
        ev.StepStarted(step_name="search"),
        ev.StepFinished(step_name="search"),
        ev.StepStarted(step_name="write"),
        ev.StepFinished(step_name="write"),
    ]


async def test_events_of_a_subagent_carry_its_id() -> None:
    events = await events_of(input_of("subagent"))
    kinds = types(events)
    assert kinds[0] == "SUBAGENT_STARTED"
    assert kinds.count("SUBAGENT_FINISHED") == 1
    owners = [event.subagent_run_id for event in events if isinstance(event, ev.TextMessageStart)]
    assert owners == ["subagent-1", None]


async def test_a_crash_comes_in_the_middle_of_a_message() -> None:
    events: list[ev.Event] = []
    with pytest.raises(RuntimeError):
        await collect(events, input_of("crash"))
    assert types(events)[0] == "TEXT_MESSAGE_START"
    assert "TEXT_MESSAGE_END" not in types(events)


@pytest.mark.parametrize("text", ["hang", "count 1000000 every 999999ms"])
async def test_an_interrupt_ends_a_waiting_run_well(text: str) -> None:
    demo = adapter()
    events: list[ev.Event] = []
    begun = anyio.Event()

    async def play() -> None:
        async for event in structs_of(demo.run(input_of(text))):
            events.append(event)
            begun.set()

    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            await begun.wait()
            await demo.interrupt()
    assert types(events)[-1] == "TEXT_MESSAGE_END"


async def test_an_interrupt_ends_a_run_that_never_waits() -> None:
    demo = adapter()
    events: list[ev.Event] = []
    async for event in structs_of(demo.run(input_of("count 1000000"))):
        events.append(event)
        if len(events) == 3:
            await demo.interrupt()
    assert types(events) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]


async def test_an_interrupt_between_runs_does_not_touch_the_next() -> None:
    demo = adapter()
    await demo.interrupt()
    assert len([event async for event in demo.run(input_of("count 5 every 1ms"))]) == 7


async def test_closing_a_hanging_run_early_leaves_nothing_waiting() -> None:
    with unless_hung():
        async with aclosing(structs_of(adapter().run(input_of("hang")))) as run:
            await anext(run)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in {"approve", "crash", "hang"}])
async def test_every_command_that_ends_is_a_legal_run(command: str) -> None:
    verifier = Verifier()
    verifier.check(ev.RunStarted(thread_id="t", run_id="r"))
    for event in await events_of(input_of(f"{command} 5", tools=[COLOR_TOOL])):
        verifier.check(event)
    verifier.check(ev.RunFinished(thread_id="t", run_id="r"))
    verifier.finish()


@pytest.mark.parametrize("text", ["help", "what is this?", "", "   "])
async def test_help_and_anything_else_list_every_command(text: str) -> None:
    answer = text_of(await events_of(input_of(text)))
    assert [command.usage for command in COMMANDS.values() if f"`{command.usage}`" not in answer] == []


async def test_a_conversation_without_a_user_message_gets_help() -> None:
    run = RunAgentInput.model_validate({"threadId": "t", "runId": "r", "messages": []})
    assert "demo agent" in text_of(await events_of(run))


async def test_the_newest_user_message_counts() -> None:
    then = [{"id": "a1", "role": "assistant", "content": "old"}, {"id": "u2", "role": "user", "content": "say new"}]
    assert text_of(await events_of(input_of("say old", then=then))) == "new"


async def test_ids_are_new_in_every_run() -> None:
    demo = DemoBridge().create_adapter(PlatformContext())
    ids = [
        event.message_id
        for _ in range(2)
        async for event in structs_of(demo.run(input_of("say hello")))
        if isinstance(event, ev.TextMessageStart)
    ]
    assert len(set(ids)) == 2


def test_the_demo_declares_what_it_shows() -> None:
    assert DemoBridge().capabilities() == FrameworkCapabilities(thinking=True)
