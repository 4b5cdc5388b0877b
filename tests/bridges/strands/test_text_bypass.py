"""Text bypasses the SDK: at once, in order, never far ahead of the consumer, and the SDK still gets all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from strands import tool

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.bridges.strands.sdk import add_middleware, agent_stream_stage
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says, text, turn
from tests.bridges.strands.world import agent_of, strands, tasks_since
from tests.machine_speed import unless_hung
from tests.world import structs_of

POSTED = input_to_agui(
    e.RunAgentInput(thread_id="t", run_id="r", messages=[e.UserMessage(id="u", content="go")], tools=[])
)


def adapter_of(agent: Any) -> Any:
    return StrandsBridge(agent).create_adapter(PlatformContext())


def deltas(events: list[e.Event]) -> list[str]:
    return [event.delta for event in events if isinstance(event, e.TextMessageContent)]


async def test_a_delta_is_sent_while_the_model_still_produces_the_next() -> None:
    thinking = anyio.Event()
    block = text("one ", "two")
    block.insert(2, thinking)
    with unless_hung():
        async with aclosing(structs_of(adapter_of(agent_of(ScriptedModel(turn(block)))).run(POSTED))) as events:
            expected = [await anext(events) for _ in range(3)]
            assert deltas(expected) == ["one "]
            thinking.set()
            expected += [event async for event in events]
    assert deltas(expected) == ["one ", "two"]


async def test_the_sdk_knows_all_that_was_said() -> None:
    agent = agent_of(ScriptedModel(turn(text("a", "b", "c"), text("d"))))
    async with strands(lambda: agent) as thread:
        await thread.say("hi")
        assert deltas(thread.events) == ["a", "b", "c", "d"]
    assert agent.messages[-1]["content"] == [{"text": "abc"}, {"text": "d"}]


async def test_a_model_that_never_waits_is_paused_until_its_deltas_were_sent() -> None:
    made = 0

    class Endless(ScriptedModel):
        async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
            nonlocal made
            yield {"messageStart": {"role": "assistant"}}
            while True:
                made += 1
                yield {"contentBlockDelta": {"delta": {"text": "x"}}}

    before = asyncio.all_tasks()
    with unless_hung():
        async with aclosing(structs_of(adapter_of(agent_of(Endless())).run(POSTED))) as events:
            for received in range(300):
                await anext(events)
                assert made - received <= 130
    assert await tasks_since(before) == set()


async def test_a_tool_does_not_run_before_earlier_deltas_were_sent() -> None:
    ran: list[str] = []

    @tool
    async def note(word: str) -> str:
        """Notes a word."""
        ran.append(word)
        return "noted"

    model = ScriptedModel(calls(text("I ", "note."), call("c1", "note", '{"word": "x"}')), says("Done."))
    with unless_hung():
        async with aclosing(structs_of(adapter_of(agent_of(model, note)).run(POSTED))) as events:
            async for event in events:
                if isinstance(event, e.ToolCallEnd):
                    break
                await anyio.wait_all_tasks_blocked()  # The SDK has had the time to run ahead.
                assert ran == []


async def test_a_model_may_give_anything_that_can_be_iterated() -> None:
    class Plain:
        def __init__(self, chunks: AsyncIterator[Any]) -> None:
            self._chunks = chunks

        def __aiter__(self) -> AsyncIterator[Any]:
            return self

        async def __anext__(self) -> Any:
            return await anext(self._chunks)

    class Model(ScriptedModel):
        def stream(self, *args: Any, **options: Any) -> Any:
            return Plain(super().stream(*args, **options))

    async with strands(agent_of(Model(says("a", "b")))) as thread:
        await thread.say("hi")
        assert deltas(thread.events) == ["a", "b"]


async def test_partial_text_is_sent_before_the_failure() -> None:
    model = ScriptedModel([*turn(text("half ", "of it"))[:4], RuntimeError("gone")])
    async with strands(agent_of(model)) as thread:
        await thread.say("hi")
        assert deltas(thread.events) == ["half ", "of it"]


async def test_middleware_around_the_whole_stream_sees_every_delta_and_may_change_it() -> None:
    async def shout(context: Any, next_fn: Any) -> AsyncGenerator[Any, None]:
        async for event in next_fn(context):
            if "data" in event:
                event["data"] = event["data"].upper()
            yield event

    agent = agent_of(ScriptedModel(says("a", "b")))
    add_middleware(agent, agent_stream_stage(), shout)
    async with strands(agent) as thread:
        await thread.say("hi")
        assert deltas(thread.events) == ["A", "B"]


async def test_an_agent_that_several_threads_share_streams_for_each() -> None:
    agent = agent_of(ScriptedModel(says("a", "b"), says("c", "d"), says("e", "f")))
    async with strands(lambda: agent) as thread:
        for name, texts in (("one", ["a", "b"]), ("two", ["c", "d"]), ("one", ["e", "f"])):
            thread.name = name
            await thread.say("hi")
            assert deltas(thread.events) == texts


async def test_an_agent_that_was_cancelled_and_is_used_again_continues() -> None:
    thinking = anyio.Event()
    block = text("one ", "two")
    block.insert(2, thinking)
    agent = agent_of(ScriptedModel(turn(block), says("a", "b")))
    adapter = adapter_of(lambda: agent)
    with unless_hung():
        async with aclosing(structs_of(adapter.run(POSTED))) as events:
            assert deltas([await anext(events) for _ in range(3)]) == ["one "]
        assert deltas([event async for event in structs_of(adapter.run(POSTED))]) == ["a", "b"]


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
async def test_a_model_that_would_end_the_process_fails_its_run_alone(ending: type[BaseException]) -> None:
    async with strands(agent_of(ScriptedModel([*turn(text("half "))[:3], ending(3)], says("on")))) as thread:
        await thread.say("hi")
        assert deltas(thread.events) == ["half "]
        await thread.say("again")
        assert deltas(thread.events) == ["on"]
