"""What Langfuse receives: the tree in its own words, over OTLP, with the project's keys."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ambient_runner.config import LangfuseSettings, OtlpSettings, TracingSettings
from ambient_runner.protocol.events import RunError, RunFinished, TokenUsage
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry.tracing import Tracing
from tests.receiver import LANGFUSE_TRACES, TRACES, Receiver, Seen, receiving
from tests.scripts import begun, forever, hello
from tests.telemetry.world import called, script_of
from tests.world import KEY, ScriptedAgent, events_of, request, run_once, runner_of, said, user

KEYS = {"public_key": "pk-lf-of-the-tests", "secret_key": "sk-lf-of-the-tests"}


@asynccontextmanager
async def to_langfuse(script: Any, receiver: Receiver, *, stage: str = "", **more: Any) -> AsyncGenerator[Runner, None]:
    """A Runner that traces to Langfuse. What it has to say has arrived when the block is left."""
    langfuse = LangfuseSettings(url=receiver.url, stage=stage, **KEYS)
    tracing = Tracing(TracingSettings(langfuse=langfuse, **more))
    async with tracing.run_exporters(), runner_of(ScriptedAgent(script), middleware=[tracing.middleware]) as runner:
        yield runner


def of_langfuse(span: Seen) -> dict[str, Any]:
    return {
        name.removeprefix("langfuse."): value for name, value in span.attributes.items() if name.startswith("langfuse.")
    }


async def test_langfuse_receives_the_tree_with_its_own_names_and_the_keys_of_the_project() -> None:
    usage = [TokenUsage(provider="anthropic", model="m-large", input_tokens=10, output_tokens=5, total_tokens=15)]
    finished = RunFinished(thread_id="t", run_id="r", usage=usage, result={"total_cost_usd": 0.5})
    script = script_of(*called("c1", "look", '{"a":1}', "found"), *said("m1", "it is ", "there"), finished)
    with receiving() as langfuse:
        async with to_langfuse(script, langfuse, stage="staging") as runner:
            started = await runner.start(request(user("u1", "where?")))
            await events_of(runner, started)
    assert {post.path for post in langfuse.posts} == {LANGFUSE_TRACES}
    expected = base64.b64encode(b"pk-lf-of-the-tests:sk-lf-of-the-tests").decode()
    assert {post.headers["authorization"] for post in langfuse.posts} == {f"Basic {expected}"}
    assert {post.headers["x-langfuse-ingestion-version"] for post in langfuse.posts} == {"4"}
    assert {post.headers["content-type"] for post in langfuse.posts} == {"application/x-protobuf"}
    root, tool, message = langfuse.spans()
    assert [tool.parent, message.parent, root.parent] == [root.id, root.id, ""]
    everywhere = {
        "environment": "staging",
        "trace.name": "agent",
        "trace.tags": ["agent:agent"],
        "trace.metadata.run": started.run,
        "trace.metadata.thread": "t",
    }
    assert of_langfuse(root) == everywhere | {
        "observation.type": "agent",
        "observation.input": "where?",
        "observation.output": "it is there",
    }
    assert of_langfuse(tool) == everywhere | {
        "observation.type": "tool",
        "observation.input": '{"a":1}',
        "observation.output": "found",
    }
    assert of_langfuse(message) == everywhere | {
        "observation.type": "generation",
        "observation.output": "it is there",
        "observation.model.name": "m-large",
        "observation.usage_details": '{"input":10,"output":5,"total":15}',
        "observation.cost_details": '{"total":0.5}',
    }
    assert {(span.attributes["session.id"], span.attributes["user.id"]) for span in langfuse.spans()} == {
        ("t", "local")
    }


async def test_usage_is_reported_once_so_that_it_is_not_summed_twice() -> None:
    usage = [TokenUsage(model="a", input_tokens=100), TokenUsage(model="b", input_tokens=140)]
    script = script_of(*said("m1", "one"), *said("m2", "two"), RunFinished(thread_id="t", run_id="r", usage=usage))
    with receiving() as langfuse:
        async with to_langfuse(script, langfuse) as runner:
            await run_once(runner, user("u1"))
    usage_details = [span.attributes.get("langfuse.observation.usage_details") for span in langfuse.spans()]
    assert sorted(json.loads(one)["input"] for one in usage_details if one) == [100, 140]
    assert [name for span in langfuse.spans() for name in span.attributes if name.startswith("gen_ai.usage")] == []


async def test_a_run_without_a_message_still_reports_its_usage() -> None:
    usage = [TokenUsage(model="a", input_tokens=7)]
    script = script_of(*called("c1", "look", "{}", "x"), RunFinished(thread_id="t", run_id="r", usage=usage))
    with receiving() as langfuse:
        async with to_langfuse(script, langfuse) as runner:
            await run_once(runner, user("u1"))
    [took] = [span for span in langfuse.spans() if span.name == "chat a"]
    assert took.attributes["langfuse.observation.usage_details"] == '{"input":7}'


async def test_failures_and_stops_have_a_level() -> None:
    async def script(run: Run) -> AsyncGenerator[Any, None]:
        if run.is_continuation:
            yield RunError(message="no more", code="quota")
        else:
            async for event in forever(run):
                yield event

    with receiving() as langfuse:
        async with to_langfuse(script, langfuse) as runner:
            started = await begun(runner, user("u1"))
            await runner.stop(KEY)
            await events_of(runner, started)
            await run_once(runner, user("u2"))
    levels = [
        (span.attributes["langfuse.observation.level"], span.attributes["langfuse.observation.status_message"])
        for span in langfuse.spans()
        if span.name == "invoke_agent agent"
    ]
    assert levels == [("WARNING", "The run was stopped."), ("ERROR", "no more")]


async def test_labels_that_langfuse_would_drop_are_replaced() -> None:
    names = ("Überlegung", "x" * 300, "plain")
    with receiving() as langfuse:
        async with to_langfuse(hello, langfuse) as runner:
            for name in names:
                await run_once(runner, user("u1"), thread=name)
    roots = [span.attributes for span in langfuse.spans() if span.name == "invoke_agent agent"]
    sessions = {root["ambient.thread"]: root["session.id"] for root in roots}
    assert sessions.keys() == set(names)
    assert sessions["plain"] == "plain"
    assert all(session.isascii() and len(session) < 200 for session in sessions.values())
    assert len(set(sessions.values())) == 3


async def test_content_can_be_excluded() -> None:
    with receiving() as langfuse:
        async with to_langfuse(hello, langfuse, content=False) as runner:
            await run_once(runner, user("u1", "a private question"))
    assert len(langfuse.spans()) == 2
    assert [word for word in ("private", "hello") if word in str(langfuse.spans())] == []


async def test_a_collector_and_langfuse_may_both_receive_spans_each_with_its_own_names() -> None:
    with receiving() as receiver:
        otlp = OtlpSettings(endpoint=f"{receiver.url}{TRACES}", headers=(("x-team", "agents"),))
        async with to_langfuse(hello, receiver, otlp=otlp) as runner:
            await run_once(runner, user("u1"))
    plain, langfuse = receiver.spans(TRACES), receiver.spans(LANGFUSE_TRACES)
    assert [(span.name, span.trace) for span in plain] == [(span.name, span.trace) for span in langfuse]
    assert plain[0].id == langfuse[0].id
    assert "hello" in str(langfuse)
    assert "hello" not in str(plain)
    assert [name for span in plain for name in span.attributes if name.startswith("langfuse.")] == []
    assert {post.headers.get("x-team") for post in receiver.posts if post.path == TRACES} == {"agents"}
    assert {post.headers.get("authorization") for post in receiver.posts if post.path == TRACES} == {None}
