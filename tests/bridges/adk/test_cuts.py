"""A run cut anywhere: stopped, cancelled, closed or left by its client. Nothing stays behind, and the next run works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.hosting import Hosted
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui import input_to_agui
from ambient_runner.runs.run import Middleware, Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.bridges.adk.scripted import Scripted, call, thought
from tests.bridges.adk.world import Talk, check, listening, questions, short, yes
from tests.world import KEY, events_of, request, user

SETTINGS = Settings(store="memory://", history="server", timeouts=Timeouts(grace=0.05))


def ask(question: str) -> None:
    """Ask a person."""


def look(city: str) -> dict[str, Any]:
    """Look."""
    return {"sky": "clear"}


def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def note(tool_context: ToolContext) -> dict[str, Any]:
    """Note."""
    tool_context.state["noted"] = True
    return {}


def scripted(*first: Any) -> Scripted:
    """A model that answers the first message with `first`, a result with "Done.", and `again` with "Fine."."""

    def answer(llm_request: Any) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            return ["Do", "ne."]
        return ["Fine."] if last.text == "again" else first

    return Scripted.of(answer, loop=True)


def one(*first: Any, **options: Any) -> LlmAgent:
    return LlmAgent(name="root", model=scripted(*first), **options)


EVERYWHERE: dict[str, Callable[[], Any]] = {
    "text": lambda: one("A", "B", "C"),
    "tool": lambda: one("A", call("look", "c1", city="Rome"), tools=[look]),
    "waiting": lambda: one(
        "A",
        call("ask", "l1", question="?"),
        call("look", "c1", city="Rome"),
        tools=[LongRunningFunctionTool(ask), look],
    ),
    "confirmation": lambda: one("A", call("pay", "p1", amount=1), tools=[FunctionTool(pay, require_confirmation=True)]),
    "reasoning": lambda: one(thought("h"), thought("m"), "A", "B"),
}
SOMEWHERE: dict[str, Callable[[], Any]] = {
    "state": lambda: one(call("note", "n1"), tools=[note]),
    "sequence": lambda: SequentialAgent(
        name="line", sub_agents=[LlmAgent(name=name, model=scripted("A", "B")) for name in ("one", "two")]
    ),
    "parallel": lambda: ParallelAgent(
        name="both", sub_agents=[LlmAgent(name=name, model=scripted("A", "B")) for name in ("one", "two")]
    ),
    "transfer": lambda: LlmAgent(
        name="root",
        model=scripted(call("transfer_to_agent", "t1", agent_name="helper")),
        sub_agents=[LlmAgent(name="helper", description="h", model=scripted("A"))],
    ),
    "two calls": lambda: one(call("look", "c1", city="A"), call("look", "c2", city="B"), tools=[look]),
}
CASES = {**EVERYWHERE, **SOMEWHERE}


def pausing(at: int, reached: anyio.Event) -> Middleware:
    """Hold the run after so many events of its agent, until it is cut."""

    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[e.Event, None]:
            count = 0
            async with aclosing(handler(run)) as events:
                async for event in events:
                    yield event
                    count += 1
                    if count == at and run.input.run_id == "r" and not reached.is_set():
                        reached.set()
                        await run.stopping.wait()

        return handle

    return wrap


async def length(name: str) -> int:
    """How many events the case has, its frame included."""
    async with (
        MemoryLedger() as ledger,
        Runner(ledger, {"agent": Hosted("agent", ADKBridge(CASES[name]()))}, SETTINGS, [listening]) as runner,
    ):
        return len(await Talk(runner).run(user("u1")))


async def goes_on(talk: Talk, events: list[e.Event]) -> None:
    """The thread takes another message, or the answer it waits for."""
    last = events[-1]
    if isinstance(last, e.RunFinished) and isinstance(last.outcome, e.Interrupted):
        assert (await talk.resume(yes(questions(events)[0])))[-1] == "RF"
    else:
        assert (await talk.say("u2", "again"))[-1] == "RF"


async def cut_at(name: str, at: int) -> None:
    """Stop the case after `at` events."""
    reached = anyio.Event()
    agents = {"agent": Hosted("agent", ADKBridge(CASES[name]()))}
    before = asyncio.all_tasks()
    with anyio.fail_after(20):
        async with (
            MemoryLedger() as ledger,
            Runner(ledger, agents, SETTINGS, [pausing(at, reached), listening]) as runner,
        ):
            started = await runner.start(request(user("u1")))
            await reached.wait()
            await runner.stop(KEY)
            events = await events_of(runner, started)
            check(events)
            assert short(events)[-1] == "RF cancelled"
            await goes_on(Talk(runner), events)
            assert runner.left_behind == set()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", EVERYWHERE)
async def test_a_stop_after_any_event(name: str) -> None:
    for at in range(1, await length(name)):
        await cut_at(name, at)


@pytest.mark.parametrize("name", SOMEWHERE)
async def test_a_stop_after_some_events(name: str) -> None:
    many = await length(name)
    for at in Random(name).sample(range(1, many), min(5, many - 1)):
        await cut_at(name, at)


def posted(run: str = "r") -> Any:
    return input_to_agui(e.RunAgentInput(thread_id="t", run_id=run, messages=[user("u1")]))


@pytest.mark.parametrize("name", CASES)
async def test_closing_the_adapter_after_any_event_leaves_nothing(name: str) -> None:
    bridge = ADKBridge(CASES[name]())
    whole = [event async for event in bridge.create_adapter(PlatformContext()).run(posted())]
    before = asyncio.all_tasks()
    for at in range(1, len(whole)):
        adapter = ADKBridge(CASES[name]()).create_adapter(PlatformContext())
        async with aclosing(adapter.run(posted())) as events:
            for _ in range(at):
                await anext(events)
        assert asyncio.all_tasks() == before
        again = [event async for event in adapter.run(posted("r2"))]
        assert isinstance(again[-1], e.RunFinished)


@pytest.mark.parametrize("name", CASES)
async def test_a_cancelled_task_leaves_nothing(name: str) -> None:
    many = await length(name)
    before = asyncio.all_tasks()
    for at in Random(name).sample(range(1, many), min(5, many - 1)):
        adapter = ADKBridge(CASES[name]()).create_adapter(PlatformContext())

        async def read(adapter: Any = adapter, at: int = at) -> None:
            async with aclosing(adapter.run(posted())) as events:
                seen = 0
                async for _ in events:
                    seen += 1
                    if seen == at:
                        current = asyncio.current_task()
                        assert current is not None
                        current.cancel()
                        await anyio.lowlevel.checkpoint()

        reading = asyncio.create_task(read())
        await asyncio.wait({reading}, timeout=10)
        assert reading.done()
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", CASES)
async def test_a_client_that_leaves_does_not_end_the_run(name: str) -> None:
    from ambient_runner.runs.watch import run_events

    many = await length(name)
    agents = {"agent": Hosted("agent", ADKBridge(CASES[name]()))}
    async with MemoryLedger() as ledger, Runner(ledger, agents, SETTINGS, [listening]) as runner:
        for at in Random(name).sample(range(1, many), min(5, many - 1)):
            talk = Talk(runner, f"t{at}")
            with anyio.fail_after(10):
                started = await runner.start(request(user("u1"), thread=talk.thread))
                async with aclosing(run_events(ledger, started)) as events:
                    for _ in range(at):
                        await anext(events)
                whole = await events_of(runner, started)
            check(whole)
            assert short(whole)[-1].startswith("RF")
            assert short(whole)[-1] != "RF cancelled"
            await goes_on(talk, whole)
