from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import ag_ui.core
import anyio
import pytest

from ambient_runner.errors import BridgeError, ProtocolViolation, RunInterrupted
from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import (
    Cancelled,
    Event,
    Interrupt,
    Interrupted,
    MessagesSnapshot,
    RunAgentInput,
    RunError,
    RunFinished,
    RunStarted,
    StateDelta,
    StateSnapshot,
    Success,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    TokenUsage,
    Tool,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
)
from ambient_runner.runs.framing import SNAPSHOT_MARKER, frame_agent, visible_event
from ambient_runner.runs.run import Actor, Run
from ambient_runner.runs.runner import Runner
from tests.machine_speed import unless_hung
from tests.world import KEY, SETTINGS, ScriptedAgent, events_of, request, run_once, runner_of, said, user

PAINT = Tool(name="paint", description="")
FIRST, SECOND = Interrupt(id="i1", reason="confirmation"), Interrupt(id="i2", reason="confirmation")


def a_run(*, tools: list[Tool] | None = None, state: Any = None) -> Run:
    run_input = RunAgentInput(
        thread_id="t", run_id="r", parent_run_id="p", messages=[user("u0"), user("u1")], tools=tools or [], state=state
    )
    return Run(
        key="k", thread=KEY, agent="agent", actor=Actor(), trace_id="abc", input=run_input, accepted=(user("u1"),)
    )


async def framing(*events: Any, run: Run | None = None, hidden: frozenset[str] = frozenset()) -> list[Event]:
    """Return the events of an agent that yields this, framed."""

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    return [event async for event in frame_agent(ScriptedAgent(script, hidden=hidden))(run or a_run())]


def finished(outcome: Any = None, **more: Any) -> RunFinished:
    return RunFinished(thread_id="t", run_id="r", outcome=outcome or Success(), **more)


async def test_a_silent_agent_gets_lifecycle_events_with_only_the_runs_messages() -> None:
    opening = RunStarted(
        thread_id="t",
        run_id="r",
        parent_run_id="p",
        protocol_version="1.0",
        metadata={"traceId": "abc"},
        input=RunAgentInput(thread_id="t", run_id="r", messages=[user("u1")]),
    )
    assert await framing() == [opening, SNAPSHOT_MARKER, finished()]


async def test_the_agents_own_frame_is_absorbed_and_its_content_used() -> None:
    usage = [TokenUsage(model="m", input_tokens=1)]
    events = await framing(
        RunStarted(thread_id="x", run_id="x"),
        MessagesSnapshot(messages=[user("forged")]),
        *said("m1", "hi"),
        RunFinished(thread_id="x", run_id="x", result=42, usage=usage, metadata={"a": 1}),
    )
    assert events[1:] == [*said("m1", "hi"), SNAPSHOT_MARKER, finished(result=42, usage=usage, metadata={"a": 1})]


async def test_an_error_the_agent_reports_is_the_end_even_if_it_then_claims_success() -> None:
    failure = RunError(message="no luck", code="mine")
    assert (await framing(failure, RunFinished(thread_id="t", run_id="r")))[1:] == [SNAPSHOT_MARKER, failure]


@pytest.mark.parametrize("outcome", [Cancelled(), Interrupted(interrupts=[FIRST])], ids=["cancelled", "interrupt"])
async def test_an_outcome_of_its_own_is_kept(outcome: Any) -> None:
    events = await framing(RunFinished(thread_id="t", run_id="r", outcome=outcome))
    assert events[-1] == finished(outcome)


async def test_only_client_tool_calls_without_a_result_stay_pending_in_their_order() -> None:
    def call(name: str, tool: str) -> list[Event]:
        return [ToolCallStart(tool_call_id=name, tool_call_name=tool), ToolCallEnd(tool_call_id=name)]

    events = await framing(
        *call("c2", "paint"),
        *call("c1", "paint"),
        *call("c3", "search"),
        *call("c4", "paint"),
        ToolCallResult(message_id="x", tool_call_id="c4", content="done"),
        run=a_run(tools=[PAINT]),
    )
    assert events[-1] == finished(Success(pending_tool_call_ids=["c2", "c1"]))


async def test_hidden_state_is_neither_in_snapshots_nor_in_deltas() -> None:
    hidden = frozenset({"secret", "_*"})
    events = await framing(
        StateSnapshot(snapshot={"a": 1, "secret": 2, "_b": 3, "messages": []}),
        StateDelta(
            delta=[
                {"op": "add", "path": "/secret/deep", "value": 1},
                {"op": "replace", "path": "/a", "value": 2},
                {"op": "remove", "path": "/_b"},
            ]
        ),
        hidden=hidden,
    )
    assert events[1:-2] == [
        StateSnapshot(snapshot={"a": 1}),
        StateDelta(delta=[{"op": "replace", "path": "/a", "value": 2}]),
    ]


async def test_the_initial_state_is_not_sent_again_but_every_later_one_is() -> None:
    same, other = StateSnapshot(snapshot={"a": 1}), StateSnapshot(snapshot={"a": 2})
    run = replace(a_run(state={"a": 1}), is_state_sent=True)
    assert (await framing(same, other, same, run=run))[1:-2] == [other, same]
    assert (await framing(other, same, run=run))[1:-2] == [other, same]
    assert (await framing(same, run=a_run(state={"a": 1})))[1:-2] == [same]
    for unlike in ({"a": True}, {"a": 1.0}, {"a": [1]}, {}):
        state = StateSnapshot(snapshot=unlike)
        assert [event.snapshot for event in (await framing(state, run=run))[1:-2]] == [unlike]


def test_a_hidden_value_is_not_copied_or_moved_into_sight() -> None:
    hidden = frozenset({"secret"})
    for op in ("copy", "move"):
        delta = visible_event(StateDelta(delta=[{"op": op, "from": "/secret", "path": "/a"}]), hidden)
        assert isinstance(delta, StateDelta)
        assert not any(operation.get("from") == "/secret" for operation in delta.delta)


def test_events_other_than_state_are_unchanged() -> None:
    event = TextMessageStart(message_id="m1")
    assert visible_event(event, frozenset({"a"})) is event


async def test_deltas_pass_as_the_very_objects_they_are() -> None:
    delta = TextMessageContent(message_id="m1", delta="x")
    assert (await framing(delta))[1] is delta


async def test_a_value_that_is_not_an_event_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation):
        await framing(42)


async def test_an_agent_may_raise_an_interrupt_inside_a_task_group() -> None:
    async def ask(interrupt: Interrupt) -> None:
        raise RunInterrupted([interrupt])

    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, FIRST)
        yield TextMessageEnd(message_id="never")

    async with runner_of(ScriptedAgent(asking)) as runner:
        events = await run_once(runner, user("u1"))
        view = await runner.view_thread(KEY)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == Interrupted(interrupts=[FIRST])
    assert set(view.open_interrupts) == {"i1"}


async def test_an_interrupt_may_be_a_model_of_ag_ui() -> None:
    model: Any = ag_ui.core.Interrupt(id="i", reason="confirmation", tool_call_id="c")

    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        raise RunInterrupted([FIRST, model])
        yield

    events = [event async for event in frame_agent(ScriptedAgent(asking))(a_run())]
    second = Interrupt(id="i", reason="confirmation", tool_call_id="c")
    assert events[-1] == finished(Interrupted(interrupts=[FIRST, second]))


async def test_all_interrupts_of_nested_groups_are_collected() -> None:
    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        raise ExceptionGroup("a", [RunInterrupted([FIRST]), ExceptionGroup("b", [RunInterrupted([SECOND])])])
        yield

    events = [event async for event in frame_agent(ScriptedAgent(asking))(a_run())]
    assert events[-1] == finished(Interrupted(interrupts=[FIRST, SECOND]))


@pytest.mark.parametrize("odd", ["", "y" * 300, "y\nz"])
async def test_an_interrupt_that_no_client_could_answer_is_a_violation(odd: str) -> None:
    with pytest.raises(ProtocolViolation):
        await framing(finished(Interrupted(interrupts=[Interrupt(id=odd, reason="confirmation")])))


async def test_an_interrupt_together_with_a_failure_is_a_failure() -> None:
    async def asking(run: Run) -> AsyncGenerator[Any, None]:
        raise ExceptionGroup("a", [RunInterrupted([FIRST]), ValueError()])
        yield

    async with runner_of(ScriptedAgent(asking)) as runner:
        events = await run_once(runner, user("u1"))
        view = await runner.view_thread(KEY)
    assert isinstance(events[-1], RunError)
    assert view.open_interrupts == {}


class BadlyClosing:
    """An iterator whose `aclose` fails, as some SDK streams do."""

    def __init__(self, events: AsyncIterator[Any], error: BaseException) -> None:
        self._events = events
        self._error = error

    def __aiter__(self) -> BadlyClosing:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._events)

    async def aclose(self) -> None:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("already closed"), asyncio.CancelledError()], ids=type)
async def test_an_agent_that_fails_when_it_is_closed_harms_no_other_run(error: BaseException) -> None:
    release = anyio.Event()

    async def talk(run: Run) -> AsyncGenerator[Any, None]:
        if run.thread.id == "other":
            await release.wait()
        for event in said("m1", "hi"):
            yield event
        if run.thread.id == "hanging":
            await anyio.sleep_forever()

    class Bad(ScriptedAgent):
        def run(self, run: Run) -> Any:
            return talk(run) if run.thread.id == "other" else BadlyClosing(talk(run), error)

    async with MemoryLedger() as ledger, Runner(ledger, {"agent": Bad(talk)}, SETTINGS) as runner:
        with unless_hung():
            other = await runner.start(request(user("u1"), thread="other"))
            bad = await run_once(runner, user("u1"), thread="bad")
            hanging = await runner.start(request(user("u1"), thread="hanging"))
            await anyio.wait_all_tasks_blocked()
            await runner.stop(hanging.thread)
            stopped = await events_of(runner, hanging)
            release.set()
            unharmed = await events_of(runner, other)
            later = await run_once(runner, user("u1"), thread="later")
    assert isinstance(bad[-1], RunError | RunFinished)
    assert isinstance(stopped[-1], RunFinished)
    assert stopped[-1].outcome == Cancelled()
    assert isinstance(unharmed[-1], RunFinished)
    assert isinstance(later[-1], RunError | RunFinished)


async def test_an_agents_error_without_a_code_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(run: Run) -> AsyncIterator[Event]:
        yield RunError(message="no route to db.internal:5432", metadata={"stack": "db.internal"})

    events = [event async for event in frame_agent(ScriptedAgent(failing))(a_run())]
    assert events[-1] == RunError(message=BridgeError().message, code="agent_error")
    assert "db.internal:5432" in caplog.text
