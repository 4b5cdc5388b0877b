"""A receiver that is down, slow or refuses costs traces and nothing else."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from prometheus_client import REGISTRY

from ambient_runner.config import LangfuseSettings, OtlpSettings, TracingSettings
from ambient_runner.protocol.events import RunFinished
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry import exporter
from ambient_runner.telemetry.exporter import SPANS_LOST
from ambient_runner.telemetry.tracing import Tracing
from tests.machine_speed import scaled, unless_hung
from tests.receiver import TRACES, receiving
from tests.scripts import begun, forever, hello
from tests.telemetry.world import called, script_of
from tests.world import ScriptedAgent, run_once, runner_of, user

KEYS = {"public_key": "pk-lf-of-the-tests", "secret_key": "sk-lf-of-the-tests"}
CLOSES_WITHIN = 5.0


@contextmanager
def unused_url() -> Iterator[str]:
    """An address at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def tracing_to(url: str) -> AsyncGenerator[Runner, None]:
    tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=url + TRACES)))
    async with tracing.run_exporters(), runner_of(ScriptedAgent(hello), middleware=[tracing.middleware]) as runner:
        yield runner


def lost(receiver: str) -> float:
    value = REGISTRY.get_sample_value("ambient_spans_lost_total", {"receiver": receiver})
    assert value is not None
    return value


async def test_spans_arrive_while_the_server_continues() -> None:
    with receiving() as receiver:
        async with tracing_to(receiver.url) as runner:
            await run_once(runner, user("u1"))
            await receiver.until(lambda seen: len(seen.spans()) == 2)


async def test_a_receiver_that_refuses_connections_does_not_touch_runs_nor_hold_up_the_end() -> None:
    with unused_url() as url:
        async with tracing_to(url) as runner:
            events = [await run_once(runner, user(f"u{at}")) for at in range(5)]
            leaving = time.monotonic()
    assert time.monotonic() - leaving < scaled(CLOSES_WITHIN)
    assert all(isinstance(run[-1], RunFinished) for run in events)


async def test_a_receiver_that_never_answers_does_not_touch_runs_nor_hold_up_the_end() -> None:
    with receiving(answer=0) as hole:
        async with tracing_to(hole.url) as runner:
            await run_once(runner, user("u1"))
            await hole.until(lambda seen: bool(seen.posts))
            with unless_hung():
                events = [await run_once(runner, user(f"v{at}")) for at in range(5)]
            leaving = time.monotonic()
        took = time.monotonic() - leaving
    assert took < scaled(CLOSES_WITHIN)
    assert all(isinstance(run[-1], RunFinished) for run in events)


async def test_lost_spans_are_counted_and_logged_once_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    SPANS_LOST.labels("langfuse")
    before = lost("langfuse")
    with receiving(answer=401) as receiver:
        langfuse = LangfuseSettings(url=receiver.url, **KEYS)
        tracing = Tracing(TracingSettings(langfuse=langfuse))
        async with tracing.run_exporters(), runner_of(ScriptedAgent(hello), middleware=[tracing.middleware]) as runner:
            for at in range(2):
                await run_once(runner, user(f"u{at}"))
                await receiver.until(lambda seen, at=at: len(seen.posts) > at)
            receiver.answer = 200
            await run_once(runner, user("last"))
    logged = [(record.levelno, record.args) for record in caplog.records if record.name == exporter.__name__]
    assert logged == [(logging.WARNING, ("langfuse", "")), (logging.INFO, ("langfuse",))]
    assert lost("langfuse") - before == 4
    assert "of-the-tests" not in caplog.text
    assert langfuse.authorization.removeprefix("Basic ") not in caplog.text
    assert "of-the-tests" not in repr(langfuse)


async def test_the_queue_for_a_slow_receiver_is_bounded_and_lost_spans_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    SPANS_LOST.labels("otlp")
    before = lost("otlp")
    calls = [event for at in range(2600) for event in called(f"c{at}", "look", "{}", "x")]
    with receiving(answer=0) as hole:
        tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=hole.url + TRACES)))
        agent = ScriptedAgent(script_of(*calls))
        async with tracing.run_exporters(), runner_of(agent, middleware=[tracing.middleware]) as runner:
            with unless_hung():
                events = await run_once(runner, user("u1"))
            sent = len(hole.posts)
            hole.release()
    assert isinstance(events[-1], RunFinished)
    # The queue, and the batches that were on their way when it filled: one, or more where the run took longer than a batch may.
    assert 2048 <= len(hole.spans()) <= 2048 + 256 * sent
    assert hole.spans()[0].name == "invoke_agent agent"
    assert lost("otlp") - before == 2600 + 1 - len(hole.spans())
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_a_run_that_continues_when_the_server_ends_is_sent_too() -> None:
    with receiving() as receiver:
        tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=receiver.url + TRACES)))
        async with (
            tracing.run_exporters(),
            runner_of(ScriptedAgent(forever), middleware=[tracing.middleware]) as runner,
        ):
            await begun(runner, user("u1"))
    assert [span.attributes.get("error.type") for span in receiver.spans()] == ["shutdown", None]


async def test_a_server_that_is_opened_again_traces_again() -> None:
    with receiving() as receiver:
        tracing = Tracing(TracingSettings(otlp=OtlpSettings(endpoint=receiver.url + TRACES)))
        for _ in range(2):
            async with (
                tracing.run_exporters(),
                runner_of(ScriptedAgent(hello), middleware=[tracing.middleware]) as runner,
            ):
                await run_once(runner, user("u1"))
    assert [span.name for span in receiver.spans()] == ["invoke_agent agent", "chat"] * 2


async def test_the_service_is_ours_unless_opentelemetry_has_a_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        async with tracing_to(receiver.url) as runner:
            await run_once(runner, user("u1"))
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
        async with tracing_to(receiver.url) as runner:
            await run_once(runner, user("u1"))
    assert [span.service for span in receiver.spans()] == ["ambient-runner"] * 2 + ["shop"] * 2
