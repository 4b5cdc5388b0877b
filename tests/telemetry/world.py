"""A Runner whose runs are traced into a list."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ambient_runner.config import Settings
from ambient_runner.protocol.events import Event, ToolCallArgs, ToolCallEnd, ToolCallResult, ToolCallStart
from ambient_runner.runs.run import Run
from ambient_runner.runs.runner import Runner
from ambient_runner.telemetry.tracing import tracing
from tests.receiver import Seen
from tests.world import SETTINGS, ScriptedAgent, runner_of

Script = Callable[[Run], AsyncIterator[Any]]


class Spans:
    """Spans that have ended, in the order of their starts."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> list[Seen]:
        return sorted(
            (_seen(span) for span in self._exporter.get_finished_spans()), key=lambda span: (span.start, -span.end)
        )

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.all if span.name == name]

    @property
    def roots(self) -> list[Seen]:
        return self.named("invoke_agent agent")

    def tree(self) -> list[str]:
        """Names as a tree, two spaces deeper for a child; one line for each span."""
        spans = self.all
        known = {span.id for span in spans}

        def below(parent: str | None) -> Iterator[str]:
            for span in spans:
                if (span.parent if span.parent in known else None) == parent:
                    yield span.name
                    yield from (f"  {line}" for line in below(span.id))

        return list(below(None))


@contextmanager
def spans_of() -> Iterator[Spans]:
    spans = Spans()
    try:
        yield spans
    finally:
        spans.provider.shutdown()


@asynccontextmanager
async def traced(
    script: Script,
    *,
    content: bool = True,
    settings: Settings = SETTINGS,
    **options: Any,
) -> AsyncGenerator[tuple[Runner, Spans], None]:
    """A Runner that traces into the spans it comes with. `options` are the agent's."""
    with spans_of() as spans:
        middleware = tracing(spans.provider, content=content)
        async with runner_of(ScriptedAgent(script, **options), settings, middleware=[middleware]) as runner:
            yield runner, spans


def called(call: str, name: str, arguments: str = "{}", result: str | None = None) -> list[Event]:
    """A whole tool call, with its result when there is one."""
    half = len(arguments) // 2
    events: list[Event] = [
        ToolCallStart(tool_call_id=call, tool_call_name=name),
        ToolCallArgs(tool_call_id=call, delta=arguments[:half]),
        ToolCallArgs(tool_call_id=call, delta=arguments[half:]),
        ToolCallEnd(tool_call_id=call),
    ]
    return events if result is None else [*events, answered(call, result)]


def answered(call: str, result: str) -> ToolCallResult:
    return ToolCallResult(message_id=f"result-{call}", tool_call_id=call, content=result, role="tool")


def script_of(*events: Any) -> Script:
    """Says these events and ends; an exception among them is raised."""

    async def script(run: Run) -> AsyncGenerator[Any, None]:
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event

    return script


def root_id(run: str) -> str:
    """The span id that a run's root has by definition."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _seen(span: Any) -> Seen:
    return Seen(
        name=span.name,
        trace=f"{span.context.trace_id:032x}",
        id=f"{span.context.span_id:016x}",
        parent=f"{span.parent.span_id:016x}" if span.parent else "",
        attributes={
            name: list(value) if isinstance(value, tuple) else value for name, value in span.attributes.items()
        },
        error=span.status.description if span.status.status_code.name == "ERROR" else None,
        links=[(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links],
        start=span.start_time,
        end=span.end_time,
    )
