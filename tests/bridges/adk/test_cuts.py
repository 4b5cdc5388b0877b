"""A run cut anywhere: stopped, cancelled, closed or left by its client. Nothing stays behind, and the next run works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import Random
from typing import Any, cast

import anyio
import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext

from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.config import Settings, Timeouts
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.runs.event_reader import follow_run
from ambient_runner.runs.run import Middleware, Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.bridges.adk.scripted import Scripted, call, thought
from tests.bridges.adk.world import Talk, check, listening, questions, short, yes
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.world import KEY, events_of, request, structs_of, user

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
    """A model that answers any message with `first`, a result with "Done.", and `again` with "Fine."."""

    def answer(llm_request: Any) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            return ["Do", "ne."]
        return ["Fine."] if last.text == "again" else first

    return Scripted.of(answer, loop=True)


def one(*first: Any, **options: Any) -> LlmAgent:
    return LlmAgent(name="root", model=scripted(*first), **options)


def models(agent: Any) -> list[Scripted]:
    """The models of an agent and of those below it."""
    mine = [agent.model] if isinstance(agent, LlmAgent) else []
    return [*cast("list[Scripted]", mine), *(model for below in agent.sub_agents for model in models(below))]


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
    "two_calls": lambda: one(call("look", "c1", city="A"), call("look", "c2", city="B"), tools=[look]),
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
        Runner(ledger, {"agent": AgentHost("agent", ADKBridge(CASES[name]()))}, SETTINGS, [listening]) as runner,
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
    agent = CASES[name]()
    agents = {"agent": AgentHost("agent", ADKBridge(agent))}
    before = asyncio.all_tasks()
    with unless_hung():
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
            assert [model.playing for model in models(agent) if model.playing] == []
            await goes_on(Talk(runner), events)
            assert runner.uncancellable_tasks == set()
    assert asyncio.all_tasks() == before


async def places(name: str) -> list[int]:
    """After how many events a case is cut: any of the five that stand for the others, five of those."""
    many = await length(name)
    anywhere = range(1, many)
    return list(anywhere) if name in EVERYWHERE else Random(name).sample(anywhere, min(5, many - 1))


@pytest.mark.parametrize("name", CASES)
async def test_a_run_that_is_stopped_leaves_nothing_and_the_thread_continues(name: str) -> None:
    for at in await places(name):
        await cut_at(name, at)


def anew(events: list[e.Event]) -> list[str]:
    """What a run says that is made again: the model uses the ids of its calls again, which are taken. State and a transfer stay."""
    return [word.replace("~2", "") for word in short(events)]


def run_input(run: str = "r") -> Any:
    return input_to_agui(e.RunAgentInput(thread_id="t", run_id=run, messages=[user("u1")]))


@pytest.mark.parametrize("name", CASES)
async def test_closing_the_adapter_after_any_event_leaves_nothing(name: str) -> None:
    whole = [
        event async for event in structs_of(ADKBridge(CASES[name]()).create_adapter(PlatformContext()).run(run_input()))
    ]
    before = asyncio.all_tasks()
    for at in range(1, len(whole)):
        agent = CASES[name]()
        adapter = ADKBridge(agent).create_adapter(PlatformContext())
        async with aclosing(structs_of(adapter.run(run_input()))) as events:
            for _ in range(at):
                await anext(events)
        assert asyncio.all_tasks() == before
        assert [model.playing for model in models(agent) if model.playing] == []
        again = [event async for event in structs_of(adapter.run(run_input("r2")))]
        assert anew(again)[-1] == short(whole)[-1]
        assert name in SOMEWHERE or anew(again) == short(whole)


@pytest.mark.parametrize("name", CASES)
async def test_cancelling_the_task_after_any_event_leaves_nothing(name: str) -> None:
    whole = [
        event async for event in structs_of(ADKBridge(CASES[name]()).create_adapter(PlatformContext()).run(run_input()))
    ]
    before = asyncio.all_tasks()
    for at in range(1, len(whole)):
        agent = CASES[name]()
        adapter = ADKBridge(agent).create_adapter(PlatformContext())
        reading = asyncio.create_task(read_until(adapter, at))
        await asyncio.wait({reading}, timeout=HANG_SECONDS)
        assert reading.cancelled()
        assert asyncio.all_tasks() == before
        assert [model.playing for model in models(agent) if model.playing] == []
        again = [event async for event in structs_of(adapter.run(run_input("r2")))]
        assert anew(again)[-1] == short(whole)[-1]
        assert name in SOMEWHERE or anew(again) == short(whole)


async def read_until(adapter: Any, at: int) -> None:
    """Read so many events, then be cancelled while waiting for the next one."""
    async with aclosing(structs_of(adapter.run(run_input()))) as events:
        seen = 0
        async for _ in events:
            seen += 1
            if seen == at:
                current = asyncio.current_task()
                assert current is not None
                current.cancel()


@pytest.mark.parametrize("name", CASES)
async def test_a_client_that_leaves_does_not_end_the_run(name: str) -> None:
    agents = {"agent": AgentHost("agent", ADKBridge(CASES[name]()))}
    async with MemoryLedger() as ledger, Runner(ledger, agents, SETTINGS, [listening]) as runner:
        for at in await places(name):
            talk = Talk(runner, f"t{at}")
            with unless_hung():
                started = await runner.start(request(user("u1"), thread=talk.thread))
                async with aclosing(follow_run(ledger, started)) as events:
                    for _ in range(at):
                        await anext(events)
                whole = await events_of(runner, started)
            check(whole)
            assert short(whole)[-1].startswith("RF")
            assert short(whole)[-1] != "RF cancelled"
            await goes_on(talk, whole)
