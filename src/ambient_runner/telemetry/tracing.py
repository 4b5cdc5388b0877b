"""Tracing: middleware that exports every run as spans. It emits no event, changes none, and cannot fail a run.

`telemetry.tracing_from_settings` builds it from a server's settings, `tracing` for an app with its own tracer provider. Only the modules of
this package import OpenTelemetry.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ambient_runner.errors import ConfigError, optional_dependency
from ambient_runner.protocol.agui_models import coerce_event
from ambient_runner.protocol.events import EVENT_TYPES
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import enter_run
from ambient_runner.telemetry.attributes import LangfuseAttributes, SpanAttributes

with optional_dependency("opentelemetry", install="ambient-runner[otel]", refusal=ConfigError):
    from opentelemetry import context
    from opentelemetry import trace as otel
    from opentelemetry.sdk.trace import Tracer, TracerProvider

    from ambient_runner.telemetry.exporter import OtlpExporter
    from ambient_runner.telemetry.run_spans import IGNORED_EVENTS, RunSpans
    from ambient_runner.telemetry.span_ids import SpanIds, span_reference
    from ambient_runner.telemetry.span_writer import ExportTarget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ambient_runner.config import TracingSettings
    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = ["Tracing", "tracing"]

_EVENT_TYPES = frozenset(EVENT_TYPES)


def tracing(provider: otel.TracerProvider, *, content: bool = False) -> Middleware:
    """Return middleware that traces runs with your provider, which you close. With `content`, spans include messages and tool data.

    Raises: ConfigError when the provider is not one of opentelemetry-sdk.
    """
    targets = _export_targets(provider, SpanAttributes(), include_content=content)
    return _tracing_middleware(lambda: targets)


class Tracing:
    """Tracing of a server. `middleware` wraps its runs and traces them while `run_exporters` is entered."""

    def __init__(self, settings: TracingSettings) -> None:
        self._settings = settings
        self._targets: Sequence[ExportTarget] = ()
        self.middleware: Middleware = _tracing_middleware(lambda: self._targets)

    @asynccontextmanager
    async def run_exporters(self) -> AsyncGenerator[None, None]:
        """Export to every receiver in the settings. On exit, send the queued spans for a few seconds at most."""
        with ExitStack() as exports:
            self._targets = [*self._otlp_target(exports), *self._langfuse_target(exports)]
            try:
                yield
            finally:
                self._targets = ()
                with anyio.CancelScope(shield=True), isolate("sending the last traces to their receivers"):
                    await to_thread.run_sync(exports.close)

    def _otlp_target(self, exports: ExitStack) -> list[ExportTarget]:
        if (otlp := self._settings.otlp) is None:
            return []
        export = OtlpExporter(otlp.endpoint, dict(otlp.headers), receiver="otlp")
        exports.callback(export.close)
        return _export_targets(export.provider, SpanAttributes(), include_content=self._settings.content is True)

    def _langfuse_target(self, exports: ExitStack) -> list[ExportTarget]:
        """Return the Langfuse target. It includes content by default, because Langfuse is of little use without."""
        if (langfuse := self._settings.langfuse) is None:
            return []
        endpoint = f"{langfuse.url}/api/public/otel/v1/traces"
        # Without the version header Langfuse takes minutes to show a trace. It needs the trace's attributes on every span.
        headers = {"Authorization": langfuse.authorization, "x-langfuse-ingestion-version": "4"}
        export = OtlpExporter(endpoint, headers, receiver="langfuse")
        exports.callback(export.close)
        return _export_targets(
            export.provider, LangfuseAttributes(langfuse.stage), include_content=self._settings.content is not False
        )


def _tracing_middleware(targets: Callable[[], Sequence[ExportTarget]]) -> Middleware:
    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            trace = _RunTrace(targets(), run)
            run.on_terminal.append(trace.end)
            async with aclosing(handler(trace.enter_root(run))) as events:
                async for event in events:
                    trace.feed(event)
                    yield event

        return handle

    return wrap


class _RunTrace:
    """The traces of one run. The first failure ends tracing of the run: it is logged once."""

    def __init__(self, targets: Sequence[ExportTarget], run: Run) -> None:
        self._spans: list[RunSpans] = []
        with isolate(f"starting the trace of run {run.input.run_id!r}; it is not traced"):
            self._spans = [RunSpans(target, run) for target in targets]

    def enter_root(self, run: Run) -> Run:
        """Return the run with its span set, and make that current. The run has its own task, so spans of its framework join this trace."""
        if not self._spans:
            return run
        root = self._spans[0].root
        context.attach(otel.set_span_in_context(root))
        traced = replace(run, span=span_reference(root))
        enter_run(traced)
        return traced

    def feed(self, event: Event) -> None:
        # Nearly all events are deltas of something open; these lines are their whole cost.
        if type(event) in IGNORED_EVENTS:
            return
        for trace in self._spans:
            if not trace.append_delta(event):
                break
        else:
            return
        if type(event) not in _EVENT_TYPES:
            with suppress(TypeError, ValueError):  # the Runner names the middleware that yielded it
                self.feed(coerce_event(event))
            return
        traces, self._spans = self._spans, []
        with isolate("tracing a run"):
            for trace in traces:
                trace.feed(event)
            self._spans = traces

    def end(self, terminal: Terminal) -> None:
        for trace in self._spans:
            trace.end(terminal)


def _export_targets(
    provider: otel.TracerProvider, attributes: SpanAttributes, *, include_content: bool
) -> list[ExportTarget]:
    """Return the provider as a target; none when OpenTelemetry is disabled (OTEL_SDK_DISABLED)."""
    if not isinstance(provider, TracerProvider):
        raise ConfigError("tracing() needs a TracerProvider of opentelemetry-sdk.")
    tracer = provider.get_tracer("ambient_runner")
    if not isinstance(tracer, Tracer):
        return []
    if not isinstance(tracer.id_generator, SpanIds):
        tracer.id_generator = SpanIds(tracer.id_generator)
    return [ExportTarget(tracer=tracer, attributes=attributes, include_content=include_content)]
