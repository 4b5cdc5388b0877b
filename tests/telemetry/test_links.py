"""How traces of several runs and several services hang together."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from opentelemetry import trace as otel

from ambient_runner.ledger.memory import MemoryLedger
from ambient_runner.protocol.events import Interrupt, Interrupted, ResumeEntry, RunFinished, Tool, ToolMessage
from ambient_runner.runs.run import Actor, Run, SpanRef, current_run
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry.tracing import tracing
from tests.machine_speed import unless_hung
from tests.scripts import hello
from tests.telemetry.world import answered, called, root_id, script_of, spans_of, traced
from tests.world import SETTINGS, ScriptedAgent, events_of, request, run_once, said, user

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ANSWER = [ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True})]


async def asking(run: Run) -> AsyncGenerator[Any, None]:
    """Calls a tool that a person has to allow, and runs it once they have."""
    if run.input.resume:
        yield answered("c1", "deployed")
        return
    for event in called("c1", "deploy", '{"to":"production"}'):
        yield event
    question = Interrupt(id="i1", reason="confirmation", tool_call_id="c1")
    yield RunFinished(thread_id="t", run_id="r", outcome=Interrupted(interrupts=[question]))


async def test_the_run_that_answers_an_interrupt_is_linked_to_the_interrupted_run_also_after_a_restart() -> None:
    async with MemoryLedger() as ledger:
        with spans_of() as before:
            async with Runner(ledger, {"agent": ScriptedAgent(asking)}, SETTINGS, [tracing(before.provider)]) as runner:
                first = await runner.start(request(user("u1")))
                await events_of(runner, first)
        with spans_of() as after:
            agents = {"agent": ScriptedAgent(asking)}
            async with Runner(ledger, agents, SETTINGS, [tracing(after.provider, content=True)]) as runner:
                await events_of(runner, await runner.start(request(resume=ANSWER)))
    interrupted, waited = before.all
    assert (interrupted.id, interrupted.attributes["ambient.outcome"]) == (root_id(first.run), "interrupt")
    assert interrupted.attributes["ambient.interrupts"] == ["i1"]
    assert waited.attributes["ambient.outcome"] == "pending"
    resumed, done = after.all
    assert resumed.trace != interrupted.trace
    assert resumed.links == [(interrupted.trace, interrupted.id)]
    assert (done.name, done.parent, done.links) == ("execute_tool deploy", resumed.id, [(interrupted.trace, waited.id)])
    words = (done.attributes["gen_ai.tool.call.arguments"], done.attributes["gen_ai.tool.call.result"])
    assert words == ('{"to":"production"}', "deployed")


async def test_a_frontend_call_waits_and_its_result_in_the_next_run_is_linked_to_it() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        events = said("m2", "thanks") if run.is_continuation else called("c1", "paint", '{"color":"teal"}')
        for event in events:
            yield event

    tools = [Tool(name="paint", description="")]
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"), tools=tools)
        await run_once(runner, ToolMessage(id="r1", tool_call_id="c1", content="painted"), tools=tools)
    assert spans.tree() == [
        "invoke_agent agent",
        "  execute_tool paint",
        "invoke_agent agent",
        "  execute_tool paint",
        "  chat",
    ]
    waiting, done = spans.named("execute_tool paint")
    assert waiting.attributes["ambient.outcome"] == "pending"
    assert "gen_ai.tool.call.result" not in waiting.attributes
    assert done.links == [(waiting.trace, waiting.id)]
    assert done.attributes["gen_ai.tool.call.result"] == "painted"
    assert done.attributes["ambient.outcome"] == "success"
    assert spans.roots[1].links == [(waiting.trace, spans.roots[0].id)]


async def test_a_result_that_is_an_error_makes_its_call_one() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in said("m2", "sorry") if run.is_continuation else called("c1", "paint"):
            yield event

    tools = [Tool(name="paint", description="")]
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"), tools=tools)
        failed = ToolMessage(id="r1", tool_call_id="c1", content="", error="no brush")
        await run_once(runner, failed, tools=tools)
    done = spans.named("execute_tool paint")[1]
    assert (done.error, done.attributes["error.type"]) == ("no brush", "tool_error")
    assert [root.error for root in spans.roots] == [None, None]


async def test_a_run_continues_the_trace_of_its_caller() -> None:
    async with traced(hello) as (runner, spans):
        await run_once(runner, user("u1"), caller=SpanRef(trace_id=TRACE, span_id=PARENT))
    assert [(span.trace, span.parent) for span in spans.roots] == [(TRACE, PARENT)]
    assert spans.tree() == ["invoke_agent agent", "  chat"]


async def test_a_trace_that_the_caller_does_not_sample_is_not_sampled_here() -> None:
    async with traced(hello) as (runner, spans):
        await run_once(runner, user("u1"), caller=SpanRef(trace_id=TRACE, span_id=PARENT, sampled=False))
        await run_once(runner, user("u2"))
    assert [span.trace == TRACE for span in spans.roots] == [False]


@pytest.mark.parametrize("sampled", [True, False])
async def test_a_traced_run_has_its_own_span_in_the_callers_trace(sampled: bool) -> None:
    runs: list[Run] = []

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        runs.append(current_run())
        for event in said("m1", "hi"):
            yield event

    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"), caller=SpanRef(trace_id=TRACE, span_id=PARENT, sampled=sampled))
    span = runs[0].span
    assert span is not None
    assert (span.trace_id, span.sampled, span.span_id == PARENT) == (TRACE, sampled, False)
    assert [root.id for root in spans.roots] == ([span.span_id] if sampled else [])


async def test_spans_of_a_framework_become_part_of_the_trace() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        with spans.provider.get_tracer("framework").start_as_current_span("call_llm"):
            await anyio.lowlevel.checkpoint()
        for event in said("m1", "hi"):
            yield event

    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  call_llm", "  chat"]
    assert otel.get_current_span() is otel.INVALID_SPAN


async def test_runs_of_two_users_at_the_same_time_do_not_mix() -> None:
    both_talk = anyio.Event()
    talking: set[str] = set()

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        who = run.actor.owner
        yield from_start(who)
        talking.add(who)
        if len(talking) == 2:
            both_talk.set()
        with unless_hung():
            await both_talk.wait()
        for event in [*called(f"c-{who}", f"tool_of_{who}", f'{{"who":"{who}"}}', who)]:
            yield event
            await anyio.lowlevel.checkpoint()
        for event in said("m-" + who, *f"words of {who}"):
            yield event
            await anyio.lowlevel.checkpoint()

    def from_start(who: str) -> Any:
        return said("first-" + who, who)[0]

    async with traced(script) as (runner, spans):
        started = [
            await runner.start(dataclasses.replace(request(user("u1"), thread="same"), actor=Actor(owner=who)))
            for who in ("ann", "bob")
        ]
        for one in started:
            await events_of(runner, one)
    for one in started:
        who, other = one.thread.owner, "bob" if one.thread.owner == "ann" else "ann"
        mine = [span for span in spans.all if span.attributes["ambient.run"] == one.run]
        assert len({span.trace for span in mine}) == 1
        assert {span.attributes["user.id"] for span in mine} == {who}
        assert sorted(span.name for span in mine) == [
            "chat",
            "chat",
            f"execute_tool tool_of_{who}",
            "invoke_agent agent",
        ]
        assert other not in str(mine)
        assert f"words of {who}" in str(mine)


async def test_a_run_of_another_thread_is_not_linked() -> None:
    async with traced(script_of(*said("m1", "hi"))) as (runner, spans):
        await run_once(runner, user("u1"))
        await run_once(runner, user("u2"))
    assert [root.links for root in spans.roots] == [[], []]
