"""One run, one tree of spans: what is in it, whichever way the run goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec

from ambient_runner.config import Settings, Timeouts
from ambient_runner.protocol.events import (
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunError,
    RunFinished,
    RunStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    TextMessageChunk,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    TokenUsage,
    ToolCallChunk,
)
from ambient_runner.runs.run import Run
from tests.machine_speed import unless_hung
from tests.scripts import begun, forever, hello
from tests.telemetry.world import answered, called, root_id, script_of, traced
from tests.world import KEY, events_of, request, run_once, said, user


def trace_of(events: list[Any]) -> str:
    started = events[0]
    assert isinstance(started, RunStarted)
    assert started.metadata is not None
    return started.metadata["traceId"]


async def test_a_run_is_one_tree_in_the_trace_that_run_started_names() -> None:
    usage = [TokenUsage(provider="anthropic", model="m-large", input_tokens=10, output_tokens=5, cached_input_tokens=4)]
    finished = RunFinished(thread_id="t", run_id="r", usage=usage, result={"total_cost_usd": 0.25})
    script = script_of(
        *said("m1", "let me ", "see"), *called("c1", "look", '{"a":1}', "found"), *said("m2", "done"), finished
    )
    async with traced(script) as (runner, spans):
        started = await runner.start(request(user("u1", "where?")))
        events = await events_of(runner, started)
    assert spans.tree() == ["invoke_agent agent", "  chat", "  execute_tool look", "  chat m-large"]
    root, first, tool, last = spans.all
    everywhere = {
        "session.id": "t",
        "user.id": "local",
        "gen_ai.conversation.id": "t",
        "gen_ai.provider.name": "ambient_runner",
        "ambient.run": started.run,
        "ambient.thread": "t",
        "ambient.tenant": "default",
    }
    took = {
        "gen_ai.provider.name": "anthropic",
        "gen_ai.response.model": "m-large",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "ambient.cost.usd": 0.25,
    }
    assert {span.trace for span in spans.all} == {trace_of(events)}
    assert (root.id, root.parent, root.links) == (root_id(started.run), "", [])
    assert root.attributes.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert root.attributes == everywhere | took | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent",
        "ambient.continuation": False,
        "ambient.outcome": "success",
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"where?"}]}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]',
    }
    assert first.attributes == everywhere | {
        "gen_ai.operation.name": "chat",
        "ambient.message": "m1",
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"let me see"}]}]',
    }
    assert tool.attributes == everywhere | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"a":1}',
        "gen_ai.tool.call.result": "found",
        "ambient.outcome": "success",
    }
    assert last.attributes == everywhere | took | {
        "gen_ai.operation.name": "chat",
        "ambient.message": "m2",
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]',
    }
    assert [span.start <= span.end for span in spans.all] == [True] * 4
    assert root.end >= last.end


async def test_a_tool_that_runs_before_any_text_belongs_to_the_run() -> None:
    async with traced(script_of(*called("c1", "look", '{"where":"here"}', "there"))) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  execute_tool look"]
    tool = spans.all[1].attributes
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ('{"where":"here"}', "there")


async def test_concurrent_calls_keep_their_own_arguments() -> None:
    one, two = called("c1", "look", '{"n":1}'), called("c2", "look", '{"n":2}')
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    async with traced(script_of(*mixed, answered("c2", "second"), answered("c1", "first"))) as (runner, spans):
        await run_once(runner, user("u1"))
    words = {
        span.attributes["gen_ai.tool.call.id"]: (
            span.attributes["gen_ai.tool.call.arguments"],
            span.attributes["gen_ai.tool.call.result"],
        )
        for span in spans.named("execute_tool look")
    }
    assert words == {"c1": ('{"n":1}', "first"), "c2": ('{"n":2}', "second")}


async def test_chunks_are_messages_and_calls_too() -> None:
    script = script_of(
        TextMessageChunk(message_id="m1", role="assistant", delta="hel"),
        TextMessageChunk(delta="lo"),
        ToolCallChunk(tool_call_id="c1", tool_call_name="look", delta='{"a'),
        ToolCallChunk(delta='":1}'),
    )
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  chat", "  execute_tool look"]
    assert "hello" in spans.all[1].attributes["gen_ai.output.messages"]
    assert spans.all[2].attributes["gen_ai.tool.call.arguments"] == '{"a":1}'


async def test_only_assistant_messages_are_spans() -> None:
    script = script_of(
        TextMessageStart(message_id="d1", role="developer"),
        TextMessageContent(message_id="d1", delta="Workspace validated"),
        TextMessageEnd(message_id="d1"),
        ReasoningMessageStart(message_id="r1"),
        ReasoningMessageContent(message_id="r1", delta="a private thought"),
        ReasoningMessageEnd(message_id="r1"),
        *said("m1", "hello"),
    )
    async with traced(script, relays_developer_messages=True) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  chat"]
    assert "private" not in str(spans.all)


async def test_spans_of_subagents_are_children_of_their_call_and_have_their_own_tools() -> None:
    script = script_of(
        *called("c1", "delegate"),
        SubagentStarted(subagent_run_id="s1", name="researcher", parent_tool_call_id="c1"),
        *[
            type(event)(**{name: getattr(event, name) for name in event.__struct_fields__} | {"subagent_run_id": "s1"})
            for event in [*called("c2", "search", "{}", "hit"), *said("m1", "found")]
        ],
        SubagentStarted(subagent_run_id="s2", name="checker", parent_subagent_run_id="s1"),
        SubagentError(subagent_run_id="s2", message="no way", code="lost"),
        SubagentFinished(subagent_run_id="s1"),
        answered("c1", "all of it"),
    )
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == [
        "invoke_agent agent",
        "  execute_tool delegate",
        "    invoke_agent researcher",
        "      execute_tool search",
        "      chat",
        "      invoke_agent checker",
    ]
    [checker] = spans.named("invoke_agent checker")
    assert (checker.error, checker.attributes["error.type"]) == ("no way", "lost")
    assert spans.roots[0].error is None


async def test_an_error_the_agent_reports_is_an_error() -> None:
    async with traced(script_of(*said("m1", "oh"), RunError(message="out of tokens", code="quota"))) as (runner, spans):
        await run_once(runner, user("u1"))
    root = spans.roots[0]
    assert (root.error, root.attributes["error.type"], root.attributes["ambient.outcome"]) == (
        "out of tokens",
        "quota",
        "error",
    )
    assert [span.error for span in spans.named("chat")] == [None]


async def test_an_exception_is_an_error_and_its_text_stays_in_the_log() -> None:
    script = script_of(*called("c1", "look"), ValueError("a private detail"))
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    root, tool = spans.all
    assert (root.attributes["error.type"], tool.attributes["ambient.outcome"]) == ("agent_error", "error")
    assert "private" not in str(spans.all)


async def test_a_stopped_run_closes_its_spans_and_the_next_run_has_a_trace_of_its_own() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in called("c-" + run.key, "look"):
            yield event
        async for event in hello(run) if run.is_continuation else forever(run):
            yield event

    async with traced(script) as (runner, spans):
        started = await begun(runner, user("u1"))
        await runner.stop(KEY)
        first = await events_of(runner, started)
        second = await run_once(runner, user("u2"))
    assert spans.tree() == ["invoke_agent agent", "  execute_tool look", "  chat"] * 2
    outcomes = [(span.trace, span.attributes["ambient.outcome"], span.error) for span in spans.roots]
    assert outcomes == [(trace_of(first), "cancelled", None), (trace_of(second), "success", None)]
    assert [span.attributes["ambient.outcome"] for span in spans.named("execute_tool look")] == ["cancelled", "pending"]
    assert len({span.trace for span in spans.all[:3]}) == 1


async def test_a_run_that_times_out_has_an_error_span() -> None:
    settings = Settings(store="memory://", history="server", timeouts=Timeouts(idle=0.05, grace=0.5))
    async with traced(forever, settings=settings) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  chat"]
    assert spans.roots[0].attributes["error.type"] == "agent_timeout"


async def test_a_run_that_the_server_cuts_at_shutdown_is_closed() -> None:
    settings = Settings(store="memory://", history="server", timeouts=Timeouts(grace=0.05))
    async with traced(forever, settings=settings) as (runner, spans):
        await begun(runner, user("u1"))
        await runner.drain()
    assert spans.tree() == ["invoke_agent agent", "  chat"]
    assert spans.roots[0].attributes["error.type"] == "shutdown"


async def test_an_agent_that_will_not_end_leaves_no_span_open() -> None:
    ears = anyio.Event()

    async def deaf(run: Run) -> AsyncGenerator[Any, None]:
        async for event in hello(run):
            yield event
        while not ears.is_set():
            try:
                await ears.wait()
            except anyio.get_cancelled_exc_class():
                continue

    settings = Settings(store="memory://", history="server", timeouts=Timeouts(grace=0.05))
    async with traced(deaf, settings=settings) as (runner, spans):
        started = await begun(runner, user("u1"))
        await runner.stop(KEY)
        await events_of(runner, started)
        assert spans.tree() == ["invoke_agent agent", "  chat"]
        assert spans.roots[0].attributes["ambient.outcome"] == "cancelled"
        ears.set()
        with unless_hung():
            while runner.uncancellable_tasks:
                await anyio.lowlevel.checkpoint()
    assert len(spans.all) == 2


async def test_a_run_that_loses_its_thread_is_closed_as_an_error() -> None:
    over = anyio.Event()

    async def robbed(run: Run) -> AsyncGenerator[Any, None]:
        run.on_terminal.append(lambda terminal: over.set())  # behind the trace's own
        for event in said("m1", "hello"):
            yield event
        await runner.ledger.erase_thread(run.thread)
        for event in said("m2", *["more"] * 2000):
            yield event

    async with traced(robbed) as (runner, spans):
        await runner.start(request(user("u1")))
        with unless_hung():
            await over.wait()
    assert spans.roots[0].attributes["error.type"] == "store_unavailable"


async def test_usage_is_that_of_the_terminal_event() -> None:
    usage = [
        TokenUsage(model="small", input_tokens=100, output_tokens=1),
        TokenUsage(model="large", input_tokens=140, reasoning_tokens=7),
    ]
    finished = RunFinished(thread_id="t", run_id="r", usage=usage)
    async with traced(script_of(*said("m1", "hi"), finished)) as (runner, spans):
        await run_once(runner, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  chat large", "  chat small"]

    def took(name: str) -> dict[str, Any]:
        [span] = spans.named(name)
        return {key: value for key, value in span.attributes.items() if ".usage." in key or key.endswith(".model")}

    assert took("chat small") == {
        "gen_ai.response.model": "small",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 1,
    }
    assert took("chat large") == {
        "gen_ai.response.model": "large",
        "gen_ai.usage.input_tokens": 140,
        "gen_ai.usage.reasoning.output_tokens": 7,
    }
    assert took("invoke_agent agent") == {
        "gen_ai.usage.input_tokens": 240,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.reasoning.output_tokens": 7,
    }


async def test_usage_in_the_result_of_an_older_adapter_counts_too() -> None:
    result = {"usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 2, "service_tier": "x"}}
    finished = RunFinished(thread_id="t", run_id="r", result=result)
    async with traced(script_of(*said("m1", "hi"), finished)) as (runner, spans):
        await run_once(runner, user("u1"))
    root = spans.roots[0].attributes
    assert {name: value for name, value in root.items() if ".usage." in name} == {
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }


async def test_a_tool_that_failed_is_an_error_and_the_run_is_not() -> None:
    failed = msgspec.structs.replace(answered("c1", "no such file"), metadata={"isError": True})
    async with traced(script_of(*called("c1", "read"), failed, *said("m1", "sorry"))) as (runner, spans):
        await run_once(runner, user("u1"))
    root, tool, _ = spans.all
    assert (tool.error, tool.attributes["error.type"], tool.attributes["ambient.outcome"]) == (
        "The tool failed.",
        "tool_error",
        "error",
    )
    assert tool.attributes["gen_ai.tool.call.result"] == "no such file"
    assert (root.error, root.attributes["ambient.outcome"]) == (None, "success")
