"""What may not leave with a trace, and that a trace never harms a run."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import ag_ui.core
import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from ambient_runner.config import Settings, TracingSettings
from ambient_runner.errors import ConfigError
from ambient_runner.projections.redaction import Secrets
from ambient_runner.protocol.events import (
    Event,
    RunError,
    RunFinished,
    RunStarted,
    SubagentStarted,
    TextMessageContent,
    TokenUsage,
)
from ambient_runner.runs.run import Middleware, Run, RunHandler
from ambient_runner.telemetry import tracing_from_settings
from ambient_runner.telemetry.span_text import MAX_TEXT, BoundedText, redact_and_truncate
from ambient_runner.telemetry.span_writer import SpanWriter
from ambient_runner.telemetry.tracing import tracing
from tests.scripts import hello
from tests.telemetry.world import Spans, called, script_of, spans_of, traced
from tests.world import ScriptedAgent, run_once, runner_of, said, user

SECRET = "sk-live-0123456789abcdef"
SETTINGS = Settings(store="memory://", history="server", secrets=(SECRET,))


async def test_no_secret_is_in_any_span() -> None:
    script = script_of(
        *said("m1", "the key is sk-live-01", "23456789abc", "def, keep it"),
        *called("c1", "look", f'{{"key":"{SECRET}"}}', f"used {SECRET}"),
        *called(f"c-{SECRET}", f"tool_{SECRET}", "{}", "x"),
        *said(f"m-{SECRET}", "hi"),
        SubagentStarted(subagent_run_id="s1", name=f"agent {SECRET}"),
        RunError(message=f"{SECRET} was refused", code=SECRET),
    )
    async with traced(script, settings=SETTINGS) as (runner, spans):
        await run_once(runner, user("u1", f"my key: {SECRET}"))
    everything = str(spans.all)
    assert SECRET not in everything
    assert "the key is [redacted], keep it" in everything
    assert everything.count("[redacted]") >= 9
    assert spans.roots[0].error == "[redacted] was refused"


@pytest.mark.parametrize("terminal", [RunFinished(thread_id="t", run_id="r"), RunError(message="failed")])
async def test_no_secret_is_in_the_names_of_model_and_provider(terminal: RunFinished | RunError) -> None:
    usage = [TokenUsage(provider=f"p-{SECRET}", model=f"m-{SECRET}", input_tokens=1)]
    async with traced(script_of(replace(terminal, usage=usage)), settings=SETTINGS) as (runner, spans):
        await run_once(runner, user("u1"))
    assert SECRET not in str(spans.all)
    assert spans.roots[0].attributes["gen_ai.response.model"] == "m-[redacted]"


async def test_a_secret_added_during_a_run_is_redacted_too() -> None:
    granted = "ghp-granted-to-this-run"

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        run.secrets.add([granted])
        for event in [*said("m1", f"got {granted}"), *called("c1", "push", f'{{"token":"{granted}"}}', granted)]:
            yield event

    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    assert granted not in str(spans.all)
    assert "got [redacted]" in str(spans.all)


async def test_without_content_no_text_is_exported() -> None:
    words = ("question of a person", "answer of an agent", "argument", "outcome of a tool")
    script = script_of(*said("m1", words[1]), *called("c1", "look", f'{{"a":"{words[2]}"}}', words[3]))
    async with traced(script, content=False) as (runner, spans):
        await run_once(runner, user("u1", words[0]))
    assert spans.tree() == ["invoke_agent agent", "  chat", "  execute_tool look"]
    assert [word for word in words if word in str(spans.all)] == []


def test_a_long_text_is_cut_and_a_secret_at_the_cut_is_not_halved() -> None:
    room = 2 * MAX_TEXT
    for hidden in range(1, len(SECRET)):
        words = BoundedText()
        for piece in ("x" * (room - hidden - 1) + " ", SECRET, "y" * 100):
            words.append(piece)
        text = redact_and_truncate(str(words), Secrets([SECRET]), limit=3 * MAX_TEXT)
        assert text == "x" * (room - hidden - 1) + " …"


def test_a_text_is_bounded_after_redaction_and_marked_where_it_was_cut() -> None:
    secrets = Secrets([SECRET])
    assert redact_and_truncate("short", secrets) == "short"
    assert redact_and_truncate("x" * MAX_TEXT, secrets) == "x" * MAX_TEXT
    assert redact_and_truncate("x" * (MAX_TEXT + 1), secrets) == "x" * (MAX_TEXT - 1) + "…"
    assert redact_and_truncate(SECRET * 600, secrets) == "[redacted]" * 600
    words = BoundedText()
    for _ in range(10_000):
        words.append("many words ")
    assert len(str(words)) == 2 * MAX_TEXT + 1


async def test_text_that_utf8_cannot_encode_does_not_lose_the_batch() -> None:
    lone = "half \ud83d a face"
    script = script_of(*said("m1", lone), *called("c1", "look\ud83d", "{}", lone))
    async with traced(script) as (runner, spans):
        await run_once(runner, user("u1"))
    str(spans.all).encode()
    assert "half ? a face" in str(spans.all)


async def test_it_makes_no_event_and_changes_none() -> None:
    usage = [TokenUsage(model="m", input_tokens=1)]
    events = [
        *said("m1", "let me ", "see"),
        *called("c1", "look", '{"a":1}', "found"),
        RunFinished(thread_id="t", run_id="r", usage=usage, result={"x": 1}),
    ]

    async def seen_with(*middleware: Middleware) -> list[Event]:
        seen: list[Event] = []

        def watching(handler: RunHandler) -> RunHandler:
            async def handle(run: Run) -> AsyncGenerator[Event, None]:
                async for event in handler(run):
                    seen.append(event)
                    yield event

            return handle

        async with runner_of(ScriptedAgent(script_of(*events)), middleware=[watching, *middleware]) as runner:
            await run_once(runner, user("u1"))
        return seen

    plain = await seen_with()
    traced_too = await seen_with(tracing(Spans().provider, content=True))
    assert traced_too[1:] == plain[1:]
    assert isinstance(traced_too[0], RunStarted)


async def test_tracing_that_fails_is_logged_once_and_the_run_continues(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = SpanWriter.start_span

    def failing(self: SpanWriter, name: str, *args: Any, **options: Any) -> Any:
        if name == "chat":
            raise ValueError(name)
        return begin(self, name, *args, **options)

    monkeypatch.setattr(SpanWriter, "start_span", failing)
    async with traced(hello) as (runner, _):
        events = await run_once(runner, user("u1"))
    assert [event.delta for event in events if isinstance(event, TextMessageContent)] == ["hel", "lo"]
    assert isinstance(events[-1], RunFinished)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failures] == ["Failed while tracing a run"]


async def test_events_of_ag_ui_that_inner_middleware_yields_are_traced(caplog: pytest.LogCaptureFixture) -> None:
    def greeting(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Any, None]:
            async for event in handler(run):
                if isinstance(event, RunFinished):
                    yield ag_ui.core.TextMessageStartEvent(message_id="g", role="assistant")
                    yield ag_ui.core.TextMessageContentEvent(message_id="g", delta="bye")
                    yield ag_ui.core.TextMessageEndEvent(message_id="g")
                yield event

        return handle

    with spans_of() as spans:
        middleware = [tracing(spans.provider, content=True), greeting]
        async with runner_of(ScriptedAgent(hello), middleware=middleware) as runner:
            events = await run_once(runner, user("u1"))
        assert spans.tree() == ["invoke_agent agent", "  chat", "  chat"]
        assert "bye" in str(spans.all)
    assert isinstance(events[-1], RunFinished)
    assert caplog.records == []


async def test_otel_sdk_disabled_switches_tracing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with traced(hello) as (runner, spans):
        events = await run_once(runner, user("u1"))
    assert isinstance(events[-1], RunFinished)
    assert spans.all == []


def test_a_provider_that_is_not_the_sdks_is_refused() -> None:
    with pytest.raises(ConfigError):
        tracing(NoOpTracerProvider())


def test_settings_without_a_receiver_trace_nothing() -> None:
    assert tracing_from_settings(TracingSettings(content=True)) is None


async def test_two_servers_may_trace_with_one_provider() -> None:
    spans = Spans()
    async with (
        runner_of(ScriptedAgent(hello), middleware=[tracing(spans.provider)]) as one,
        runner_of(ScriptedAgent(hello), middleware=[tracing(spans.provider)]) as two,
    ):
        await run_once(one, user("u1"))
        await run_once(two, user("u1"))
    assert spans.tree() == ["invoke_agent agent", "  chat"] * 2
    assert isinstance(spans.provider, TracerProvider)
