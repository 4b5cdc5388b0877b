"""A run that is cut short anywhere leaves nothing behind, and the thread goes on (case A17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import anyio
import pytest
from strands import tool

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.strands.bridge import StrandsBridge
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.runs.run import Run, RunHandler
from ambient_runner.runs.runner import Runner
from tests.bridges.strands.cases import EVERYWHERE, SOMEWHERE, Case
from tests.bridges.strands.scripted import ScriptedModel, call, calls, says
from tests.bridges.strands.world import agent_of, five_places, tasks_since, verify
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request, structs_of, user

CASES = EVERYWHERE | SOMEWHERE


async def places(name: str) -> list[int]:
    """Where this case is cut: everywhere, or at five places that stay the same."""
    case = CASES[name]
    adapter = StrandsBridge(case.build(case.models()), case.config).create_adapter(PlatformContext())
    count = len([event async for event in structs_of(adapter.run(case.run_input()))])
    return list(range(count)) if name in EVERYWHERE else five_places(count, seed=len(name))


@pytest.mark.parametrize("name", CASES)
async def test_closing_the_events_anywhere_stops_the_model_and_the_next_run_works(name: str) -> None:
    case = CASES[name]
    for place in await places(name):
        models = case.models()
        adapter = StrandsBridge(case.build(models), case.config).create_adapter(PlatformContext())
        before = asyncio.all_tasks()
        with unless_hung():
            async with aclosing(structs_of(adapter.run(case.run_input()))) as events:
                for _ in range(place + 1):
                    await anext(events)
            assert await tasks_since(before) == set()
            assert_all_closed(models)
            assert_works(case, [event async for event in structs_of(adapter.run(case.run_input("again")))])


@pytest.mark.parametrize("name", CASES)
async def test_cancelling_while_the_model_is_being_waited_for_leaves_nothing(name: str) -> None:
    case = CASES[name]
    steps = sum(len(turn) for turns in case.turns.values() for turn in turns)
    for place in range(steps) if name in EVERYWHERE else five_places(steps, seed=len(name)):
        models, reached = case.models(), anyio.Event()
        adapter = StrandsBridge(case.build(models), case.config).create_adapter(PlatformContext())
        wait_at(models, place, reached)
        before = asyncio.all_tasks()
        with unless_hung():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consume, adapter, case, reached)
                await reached.wait()
                tasks.cancel_scope.cancel()
            assert await tasks_since(before) == set()
            assert_all_closed(models)
            for model in models.values():
                model.gate = None
            assert_works(case, [event async for event in structs_of(adapter.run(case.run_input("again")))])


@pytest.mark.parametrize("name", CASES)
async def test_a_stop_anywhere_ends_the_run_as_cancelled_and_the_thread_continues(name: str) -> None:
    case = CASES[name]
    for place in await places(name):
        models = case.models()
        hosted = AgentHost("agent", StrandsBridge(case.build(models), case.config))
        async with MemoryLedger() as ledger:
            stopping = Stopping(place)
            async with Runner(ledger, {"agent": hosted}, SETTINGS, [stopping]) as runner:
                stopping.runner = runner
                with unless_hung():
                    started = await runner.start(request(user("u1", "go"), tools=case.tools))
                    events = await events_of(runner, started)
                    verify(events)
                    assert isinstance(events[-1], e.RunFinished)
                    assert_all_closed(models)
                    again = await events_of(runner, await runner.start(request(user("u2", "again"))))
                    assert_is_answered(again)
                assert stopping.has_stopped == (events[-1].outcome == e.Cancelled())


async def test_a_tool_that_does_not_end_is_abandoned_and_the_thread_continues() -> None:
    entered, release = anyio.Event(), anyio.Event()

    @tool
    async def deaf() -> str:
        """Does not hear that it should end."""
        entered.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return "at last"

    model = ScriptedModel(calls(call("c1", "deaf")), says("again"), says("late"))
    hosted = AgentHost("agent", StrandsBridge(agent_of(model, deaf)))
    async with MemoryLedger() as ledger, Runner(ledger, {"agent": hosted}, SETTINGS) as runner:
        with unless_hung():
            started = await runner.start(request(user("u1", "go")))
            await entered.wait()
            await runner.stop(KEY)
            stopped = await events_of(runner, started)
            again = await events_of(runner, await runner.start(request(user("u2", "again"))))
            release.set()
            for task in list(runner.uncancellable_tasks):  # The SDK waits for its tool, and its tool for the SDK.
                while not task.done():
                    task.cancel()
                    await asyncio.wait({task}, timeout=0.01)
    assert isinstance(stopped[-1], e.RunFinished)
    assert stopped[-1].outcome == e.Cancelled()
    assert isinstance(again[-1], e.RunFinished)
    assert again[-1].outcome == e.Success()


class Stopping:
    """Middleware that stops the first run when it sees the event at this place."""

    def __init__(self, place: int) -> None:
        self.runner: Any = None
        self.has_stopped = False
        self._place = place

    def __call__(self, handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncIterator[e.Event]:
            count = -1
            async for event in handler(run):
                yield event
                if count == self._place and not self.has_stopped and not isinstance(event, e.RunFinished):
                    self.has_stopped = True
                    await self.runner.stop(KEY)
                    await run.stopping.wait()
                count += 1

        return handle


async def consume(adapter: Any, case: Case, reached: anyio.Event) -> None:
    async with aclosing(structs_of(adapter.run(case.run_input()))) as events:
        async for _ in events:
            pass
    reached.set()


def wait_at(models: dict[str, ScriptedModel], place: int, reached: anyio.Event) -> None:
    """Let whichever model comes to this step of all wait there for ever."""
    steps = iter(range(1_000_000))
    for model in models.values():
        model.gate = lambda: (reached.set(), anyio.Event())[1] if next(steps) == place else None


def assert_all_closed(models: dict[str, ScriptedModel]) -> None:
    assert [model.closed for model in models.values()] == [len(model.saw) for model in models.values()]


def assert_works(case: Case, events: list[e.Event]) -> None:
    frame: list[e.Event] = [e.RunStarted(thread_id="t", run_id="r"), *events]
    verify(frame)
    assert_is_answered(events)


def assert_is_answered(events: list[e.Event]) -> None:
    """Every agent that answers sends its answer to "again" and nothing else: a late stop would show here."""
    assert isinstance(events[-1], e.RunFinished)
    assert isinstance(events[-1].outcome, e.Success)
    assert {event.delta for event in events if isinstance(event, e.TextMessageContent)} == {"ok"}
