"""A run that is cut short anywhere leaves nothing behind, and the thread goes on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from langgraph.graph import START, MessagesState, StateGraph

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol import events as e
from ambient_runner.runs.runner import Runner
from tests.bridges.langgraph.cases import EVERYWHERE, SOMEWHERE, Case
from tests.bridges.langgraph.scripted import ScriptedModel
from tests.bridges.langgraph.world import five_places, langgraph, tasks_since, verify
from tests.bridges.strands.test_cuts import Stopping
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, events_of, request, structs_of, user

CASES = EVERYWHERE | SOMEWHERE


def adapter_of(case: Case, model: ScriptedModel) -> Any:
    return LangGraphBridge(case.build(model)).create_adapter(PlatformContext())


def places(name: str, count: int) -> list[int]:
    """Where this case is cut: everywhere, or at five places that stay the same."""
    return list(range(count)) if name in EVERYWHERE else five_places(count, seed=len(name))


async def length(case: Case) -> int:
    return len([event async for event in structs_of(adapter_of(case, case.model()).run(case.build_input()))])


@pytest.mark.parametrize("name", CASES)
async def test_closing_the_events_anywhere_stops_the_model_and_the_next_run_works(name: str) -> None:
    case = CASES[name]
    for place in places(name, await length(case)):
        model = case.model()
        adapter = adapter_of(case, model)
        before = asyncio.all_tasks()
        with unless_hung():
            async with aclosing(structs_of(adapter.run(case.build_input()))) as events:
                for _ in range(place + 1):
                    await anext(events)
            assert await tasks_since(before) == set()
            assert model.closed == len(model.saw)
            await assert_works(adapter, case, model)


@pytest.mark.parametrize("name", CASES)
async def test_cancelling_while_the_model_is_being_waited_for_leaves_nothing(name: str) -> None:
    case = CASES[name]
    for place in places(name, sum(len(turn) for turn in case.turns)):
        model, reached = case.model(), anyio.Event()
        adapter = adapter_of(case, model)
        steps = iter(range(1_000_000))
        model.gate = lambda: (reached.set(), anyio.Event())[1] if next(steps) == place else None  # noqa: B023
        before = asyncio.all_tasks()
        with unless_hung():
            task = asyncio.create_task(consume(adapter, case))
            await reached.wait()
            task.cancel()
            await asyncio.wait({task})
            assert await tasks_since(before) == set()
            assert model.closed == len(model.saw)
            model.gate = None
            await assert_works(adapter, case, model)


@pytest.mark.parametrize("name", CASES)
async def test_a_stop_anywhere_ends_the_run_as_cancelled_and_the_model_then_sees_a_whole_conversation(
    name: str,
) -> None:
    case = CASES[name]
    for place in places(name, await length(case)):
        model = case.model()
        hosted = AgentHost("agent", LangGraphBridge(case.build(model)))
        async with MemoryLedger() as ledger:
            stopping = Stopping(place)
            async with Runner(ledger, {"agent": hosted}, SETTINGS, [stopping]) as runner:
                stopping.runner = runner
                with unless_hung():
                    started = await runner.start(request(user("u1", "go"), tools=case.tools))
                    events = await events_of(runner, started)
                    verify(events)
                    assert isinstance(events[-1], e.RunFinished)
                    assert model.closed == len(model.saw)
                    resume = answers(events[-1])
                    again = await events_of(runner, await runner.start(request(user("u2", "again"), resume=resume)))
                    assert isinstance(again[-1], e.RunFinished)
        assert stopping.has_stopped == (events[-1].outcome == e.Cancelled())
        assert_sound(model.saw[-1])


@pytest.mark.parametrize("nested", [False, True], ids=["graph", "subgraph"])
async def test_a_node_that_swallows_its_first_cancel_ends_with_the_second(
    nested: bool, caplog: pytest.LogCaptureFixture
) -> None:
    entered, swallowed, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def deaf(state: MessagesState) -> Any:
        try:
            entered.set()
            await anyio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        try:
            await anyio.Event().wait()
        finally:
            ended.set()

    graph = StateGraph(MessagesState).add_node("deaf", deaf).add_edge(START, "deaf").compile()
    if nested:
        graph = StateGraph(MessagesState).add_node("inner", graph).add_edge(START, "inner").compile()
    before = asyncio.all_tasks()
    async with langgraph(graph) as thread:
        with unless_hung():
            started = await thread.runner.start(request(user("u1", "go")))
            await entered.wait()
            await thread.runner.stop(KEY)
            end = (await events_of(thread.runner, started))[-1]
            assert isinstance(end, e.RunFinished)
            assert end.outcome == e.Cancelled()
            assert swallowed.is_set()
            await ended.wait()
    assert await tasks_since(before) == set()
    assert [record.getMessage() for record in caplog.records if "left behind" in record.getMessage()] == []


def answers(end: e.RunFinished) -> list[e.ResumeEntry] | None:
    raised = end.outcome.interrupts if isinstance(end.outcome, e.Interrupted) else []
    return [e.ResumeEntry(interrupt_id=one.id, status="cancelled") for one in raised] or None


async def consume(adapter: Any, case: Case) -> None:
    async with aclosing(structs_of(adapter.run(case.build_input()))) as events:
        async for _ in events:
            pass


async def assert_works(adapter: Any, case: Case, model: ScriptedModel) -> None:
    events = [event async for event in structs_of(adapter.run(case.build_input("go", "again")))]
    verify([e.RunStarted(thread_id="t", run_id="r"), *events])
    assert isinstance(events[-1], e.RunFinished)
    assert isinstance(events[-1].outcome, e.Success)
    assert_sound(model.saw[-1])


def assert_sound(saw: list[str]) -> None:
    """What every provider wants: the user's words once, and each call answered before anyone says more."""
    assert [one for one in saw if one.startswith("user:")] == ["user: go", "user: again"]
    waiting: set[str] = set()
    for one in saw:
        if one.startswith("tool "):
            waiting.remove(one.split()[1].rstrip(":"))
        else:
            assert waiting == set()
        if one.startswith("ai:"):
            waiting = {call for call in ("c1", "c2", "f1") if f" {call} " in one}
    assert waiting == set()
