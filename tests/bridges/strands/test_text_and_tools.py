"""What the agent says and what its own tools do (cases A1 to A7)."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from strands import Agent, tool

from ambient_runner.bridges.strands import instrumentation
from ambient_runner.bridges.strands.sdk import InvokeModelStage, add_middleware
from ambient_runner.protocol import events as e
from tests.bridges.strands.scripted import (
    ScriptedModel,
    call,
    calls,
    redacted,
    said_assistant,
    said_user,
    says,
    text,
    thought,
    tool_result,
    tool_use,
    turn,
)
from tests.bridges.strands.world import agent_of, strands
from tests.world import KEY

USED = e.TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)


class Secretive:
    def __repr__(self) -> str:
        return "sk-live-0123456789"


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def now() -> str:
    """The time."""
    return "noon"


def ended(events: list[e.Event]) -> e.RunFinished:
    end = events[-1]
    assert isinstance(end, e.RunFinished)
    return end


async def test_text_is_one_message_and_the_run_reports_its_usage() -> None:
    model = ScriptedModel(says("Hel", "lo"))
    async with strands(agent_of(model)) as thread:
        assert await thread.say("hi", state={"messages": ["mine"], "plan": 1}) == [
            "TS m1",
            'TC m1 "Hel"',
            'TC m1 "lo"',
            "TE m1",
            "MS",
            "RF success",
        ]
        assert ended(thread.events).usage == [USED]
        assert (await thread.runner.view_thread(KEY)).state.value == {"plan": 1}
    assert model.saw == [[said_user("hi")]]


async def test_empty_deltas_are_not_sent_and_a_callback_handler_hears_everything() -> None:
    received: list[str] = []

    def hear(**event: Any) -> None:
        if "data" in event:
            received.append(event["data"])

    streams: list[list[str]] = []
    for handler in (None, hear):
        agent = Agent(model=ScriptedModel(says("", "a", "", "b")), callback_handler=handler)
        async with strands(agent) as thread:
            streams.append(await thread.say("hi"))
    assert streams == [["TS m1", 'TC m1 "a"', 'TC m1 "b"', "TE m1", "MS", "RF success"]] * 2
    assert received == ["", "a", "", "b"]


async def test_middleware_of_the_users_hears_everything_too() -> None:
    received: list[Any] = []

    async def hear(context: Any, next_fn: Any) -> AsyncGenerator[Any, None]:
        async for event in next_fn(context):
            received.append(event)
            yield event

    agent = agent_of(ScriptedModel(says("a", "b")))
    add_middleware(agent, InvokeModelStage, hear)
    async with strands(agent) as thread:
        assert (await thread.say("hi"))[1:3] == ['TC m1 "a"', 'TC m1 "b"']
    assert len([event for event in received if "contentBlockDelta" in event.get("event", {})]) == 2


async def test_usage_is_of_the_run_and_not_of_the_thread() -> None:
    model = ScriptedModel(says("a"), says("b"))
    async with strands(agent_of(model)) as thread:
        await thread.say("one")
        await thread.say("two")
        assert ended(thread.events).usage == [USED]


async def test_arguments_are_streamed_as_the_model_writes_them() -> None:
    arguments = ('{"ci', 'ty": "Lis', 'bon"}')
    model = ScriptedModel(calls(text("Let me look."), call("tu1", "get_weather", *arguments)), says("It is", " sunny."))
    async with strands(agent_of(model, get_weather)) as thread:
        assert await thread.say("weather?") == [
            "TS m1",
            'TC m1 "Let me look."',
            "TE m1",
            "CS tu1 get_weather < m1",
            'CA tu1 {"ci',
            'CA tu1 ty": "Lis',
            'CA tu1 bon"}',
            "CE tu1",
            'CR tu1 "sunny in Lisbon"',
            "MS",
            "TS m2",
            'TC m2 "It is"',
            'TC m2 " sunny."',
            "TE m2",
            "MS",
            "RF success",
        ]
    conversation = [
        said_user("weather?"),
        said_assistant("Let me look.", tool_use("tu1", "get_weather", {"city": "Lisbon"})),
        said_user(tool_result("tu1", "sunny in Lisbon")),
    ]
    assert model.saw == [conversation[:1], conversation]


async def test_the_next_run_is_shown_the_same_history_although_the_agent_is_made_anew() -> None:
    script = [calls(text("Look:"), call("tu1", "get_weather", '{"city": "x"}')), says("sunny"), says("bye")]
    model = ScriptedModel(*script)
    async with strands(agent_of(model, get_weather)) as thread:
        await thread.say("weather?")
        await thread.runner.agents["agent"].aclose()
        await thread.say("thanks")
    assert model.saw[2] == [
        said_user("weather?"),
        said_assistant("Look:", tool_use("tu1", "get_weather", {"city": "x"})),
        said_user(tool_result("tu1", "sunny in x")),
        said_assistant("sunny"),
        said_user("thanks"),
    ]


async def test_the_snapshot_has_the_ids_that_were_streamed() -> None:
    model = ScriptedModel(calls(text("Look:"), call("tu1", "now")), says("noon"))
    async with strands(agent_of(model, now)) as thread:
        await thread.say("time?")
        starts = {one.message_id for one in thread.events if isinstance(one, e.TextMessageStart)}
        results = {one.message_id for one in thread.events if isinstance(one, e.ToolCallResult)}
        (first, last) = [one for one in thread.events if isinstance(one, e.MessagesSnapshot)]
    assert {message.id for message in last.messages} == starts | results | {"u1"}
    assert [type(message) for message in first.messages] == [e.UserMessage, e.AssistantMessage, e.ToolMessage]


async def test_text_after_a_call_in_one_turn_is_a_message_of_its_own() -> None:
    model = ScriptedModel(calls(text("before", " it"), call("tu1", "now"), text("after", " it")), says("ok"))
    async with strands(agent_of(model, now)) as thread:
        stream = await thread.say("go")
    assert stream[:10] == [
        "TS m1",
        'TC m1 "before"',
        'TC m1 " it"',
        "TE m1",
        "CS tu1 now < m1",
        "CE tu1",
        "TS m2",
        'TC m2 "after"',
        'TC m2 " it"',
        "TE m2",
    ]


async def test_parallel_results_come_when_they_are_there_and_the_model_sees_them_in_call_order() -> None:
    fast_is_done = anyio.Event()

    @tool
    async def slow() -> str:
        """Waits for the fast one."""
        await fast_is_done.wait()
        return "slow"

    @tool
    async def fast() -> str:
        """Comes first."""
        fast_is_done.set()
        return "fast"

    model = ScriptedModel(calls(call("tu1", "slow", "{}"), call("tu2", "fast", "{}")), says("ok"))
    async with strands(agent_of(model, slow, fast)) as thread:
        assert await thread.say("go") == [
            "CS tu1 slow < m1",
            "CA tu1 {}",
            "CE tu1",
            "CS tu2 fast < m1",
            "CA tu2 {}",
            "CE tu2",
            'CR tu2 "fast"',
            "MS",
            'CR tu1 "slow"',
            "MS",
            "TS m2",
            'TC m2 "ok"',
            "TE m2",
            "MS",
            "RF success",
        ]
    assert model.saw[1][-1] == said_user(tool_result("tu1", "slow"), tool_result("tu2", "fast"))


async def test_where_the_sdk_reports_them_late_results_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrumentation, "_agent_stream_stage", lambda: None)
    model = ScriptedModel(calls(call("tu1", "now"), call("tu2", "get_weather", '{"city": "x"}')), says("ok"))
    async with strands(agent_of(model, now, get_weather)) as thread:
        stream = await thread.say("go")
    assert stream[5:9] == ['CR tu1 "noon"', "MS", 'CR tu2 "sunny in x"', "MS"]


TOLD_NOON = [
    *("CS tu1 now < m1", "CE tu1", 'CR tu1 "noon"', "MS"),
    *("TS m2", 'TC m2 "noon"', "TE m2", "MS", "RF success"),
]
"""A call of `now`, and then its result as text."""


async def test_a_tool_without_arguments_has_a_start_and_an_end() -> None:
    model = ScriptedModel(calls(call("tu1", "now")), says("noon"))
    async with strands(agent_of(model, now)) as thread:
        assert await thread.say("time?") == TOLD_NOON
    assert model.saw[1][1:] == [said_assistant(tool_use("tu1", "now")), said_user(tool_result("tu1", "noon"))]


async def test_a_provider_that_counts_its_calls_anew_loses_none_of_them() -> None:
    def again() -> list[Any]:
        return [calls(call("call_0", "get_weather", '{"city": "x"}')), calls(call("call_0", "now")), says("ok")]

    model = ScriptedModel(*again(), *again())
    async with strands(agent_of(model, get_weather, now)) as thread:
        streams = [await thread.say("one"), await thread.say("two")]
    results = [word.split(" ", 2) for stream in streams for word in stream if word.startswith("CR")]
    assert [result[2] for result in results] == ['"sunny in x"', '"noon"'] * 2
    ids = [result[1] for result in results]
    assert (len(set(ids)), ids[0]) == (4, "call_0")
    shown = [block for message in model.saw[-1] for block in message["content"]]
    assert [block["toolUse"]["toolUseId"] for block in shown if "toolUse" in block] == ids
    assert [block["toolResult"]["toolUseId"] for block in shown if "toolResult" in block] == ids


async def test_a_call_without_an_id_has_a_result_too() -> None:
    model = ScriptedModel(calls(call("", "now"), call("", "now")), says("ok"))
    async with strands(agent_of(model, now)) as thread:
        stream = await thread.say("one")
    results = [word.split(" ", 2) for word in stream if word.startswith("CR")]
    assert [result[2] for result in results] == ['"noon"'] * 2
    assert len({result[1] for result in results}) == 2


SIGNED = thought("Let me", " think.", signature="sig-1")
REASONED = ["ZS z1", "ZMS z1", 'ZMC z1 "Let me"', 'ZMC z1 " think."', "ZME z1", "ZE z1"]


async def test_reasoning_ends_before_text_and_a_signature_is_never_sent() -> None:
    model = ScriptedModel(turn(SIGNED, redacted(b"secret"), text("Yes.")))
    async with strands(agent_of(model)) as thread:
        stream = await thread.say("well?")
        assert not any("sig-1" in repr(event) for event in thread.events)
    words = ["TS m1", 'TC m1 "Yes."', "TE m1"]
    assert stream == [*REASONED, "ENC message z1 c2VjcmV0", *words, "MS", "RF success"]


async def test_reasoning_before_a_call_goes_back_to_the_model_in_the_same_run() -> None:
    model = ScriptedModel(calls(SIGNED, call("tu1", "now")), says("noon"))
    async with strands(agent_of(model, now)) as thread:
        assert await thread.say("time?") == [*REASONED, *TOLD_NOON]
    assert model.saw[1][1]["content"][0] == {
        "reasoningContent": {"reasoningText": {"text": "Let me think.", "signature": "sig-1"}}
    }


@tool
def nothing() -> None:
    """Gives nothing."""


@tool
def fails() -> str:
    """Fails."""
    raise RuntimeError("it's broken")


@tool
def many() -> dict[str, Any]:
    """Gives several blocks."""
    picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    return {"status": "success", "content": [{"text": "it's one"}, {"json": {"two": 2}}, picture]}


async def results_of(model: ScriptedModel, *tools: Any) -> list[str]:
    """Return the events of results, in the order of their calls. A second run calls the model once more."""
    async with strands(agent_of(model, *tools)) as thread:
        stream = await thread.say("go")
        assert [stream[-1], (await thread.say("and?"))[-1]] == ["RF success"] * 2
    return sorted(word for word in stream if word.startswith("CR"))


async def test_whatever_a_tool_gives_is_kept_and_an_error_is_marked() -> None:
    names = ["nothing", "fails", "many", "unknown"]
    made = [call(f"tu{at}", name, "{}") for at, name in enumerate(names)]
    model = ScriptedModel(calls(*made, call("tu4", "get_weather", "{oh no")), says("ok"), says("again"))
    results = await results_of(model, nothing, fails, many, get_weather)
    assert results[:4] == [
        'CR tu0 "null"',
        'CR tu1 "Error: RuntimeError - it\'s broken" error',
        'CR tu2 "it\'s one" + "{\\"two\\":2}" + ImagePart image/png',
        'CR tu3 "Unknown tool: unknown" error',
    ]
    assert results[4].startswith("CR tu4")
    assert results[4].endswith(" error")
    shown = {block["toolResult"]["toolUseId"]: block["toolResult"] for block in model.saw[2][2]["content"]}
    assert [shown[f"tu{at}"]["status"] for at in range(5)] == ["success", "error", "success", "error", "error"]
    assert shown["tu2"]["content"] == [
        {"text": "it's one"},
        {"text": '{"two":2}'},
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
    ]


async def test_a_tool_result_that_is_not_json_is_sent_in_the_nearest_form() -> None:
    @tool
    def odd() -> dict[str, Any]:
        """Gives what no JSON has."""
        return {"status": "success", "content": [{"json": {"key": Secretive(), "data": b"\xff", "far": math.nan}}]}

    model = ScriptedModel(calls(call("tu0", "odd")), says("ok"), says("again"))
    expected = json.dumps('{"key":"<Secretive>","data":"_w==","far":null}')
    assert await results_of(model, odd) == [f"CR tu0 {expected}"]


async def test_a_result_nested_without_end_is_only_text() -> None:
    @tool
    def fetch() -> str:
        """A page of someone who means no good."""
        return "[" * 100_000

    model = ScriptedModel(calls(call("tu0", "fetch")), says("ok"), says("again"))
    assert await results_of(model, fetch) == [f"CR tu0 {json.dumps('[' * 100_000)}"]


async def test_a_tool_that_yields_state_changes_the_whole_state() -> None:
    @tool
    async def plan() -> AsyncGenerator[Any, None]:
        """Plans in two steps."""
        yield {"state": {"steps": ["one"]}}
        yield {"state": {"steps": ["one", "two"], "done": True}}
        yield "planned"

    model = ScriptedModel(calls(call("tu1", "plan")), says("ok"))
    async with strands(agent_of(model, plan)) as thread:
        stream = await thread.say("go", state={"kept": 1})
    assert [json.loads(word[3:]) for word in stream if word.startswith("SS")] == [
        {"kept": 1, "steps": ["one"]},
        {"kept": 1, "steps": ["one", "two"], "done": True},
    ]
    assert 'CR tu1 "planned"' in stream
