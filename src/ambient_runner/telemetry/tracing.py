"""Tracing: middleware that watches every run and writes it down as spans. It makes no event, changes none, and cannot fail a run.

`middleware.tracing_of` makes it from a server's settings, `tracing` for an app that has a tracer provider of its own. This module and its
neighbours import OpenTelemetry; nothing else does.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ambient_runner.errors import ConfigError, needing
from ambient_runner.runs.isolate import isolate
from ambient_runner.runs.run import enter_run
from ambient_runner.telemetry.attributes import Dialect, LangfuseDialect

with needing("opentelemetry", install="ambient-runner[otel]", refusal=ConfigError):
    from opentelemetry import context
    from opentelemetry import trace as otel
    from opentelemetry.sdk.trace import Tracer, TracerProvider

    from ambient_runner.telemetry.exporter import Exporting
    from ambient_runner.telemetry.run_spans import UNSEEN, Trace
    from ambient_runner.telemetry.span_ids import SpanIds, reference
    from ambient_runner.telemetry.span_writer import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ambient_runner.config import TracingSettings
    from ambient_runner.protocol.events import Event, Terminal
    from ambient_runner.runs.run import Middleware, Run, RunHandler

__all__ = ["Tracing", "tracing"]


def tracing(provider: otel.TracerProvider, *, content: bool = False) -> Middleware:
    """Middleware that traces runs with a provider of yours, which stays yours to close. With `content`, what was said goes along.

    Raises: ConfigError when the provider is not one of opentelemetry-sdk.
    """
    targets = _target(provider, Dialect(), content=content)
    return _watching(lambda: targets)


class Tracing:
    """What a server traces with. `middleware` goes around its runs, and traces those that go on while `running`."""

    def __init__(self, settings: TracingSettings) -> None:
        self._settings = settings
        self._targets: Sequence[Target] = ()
        self.middleware: Middleware = _watching(lambda: self._targets)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Trace to every place the settings name. On the way out, what has not been sent gets a few seconds."""
        with ExitStack() as exports:
            self._targets = [*self._otlp(exports), *self._langfuse(exports)]
            try:
                yield
            finally:
                self._targets = ()
                with anyio.CancelScope(shield=True), isolate("sending the last traces"):
                    await to_thread.run_sync(exports.close)

    def _otlp(self, exports: ExitStack) -> list[Target]:
        if (otlp := self._settings.otlp) is None:
            return []
        export = Exporting(otlp.endpoint, dict(otlp.headers), receiver="otlp")
        exports.callback(export.close)
        return _target(export.provider, Dialect(), content=self._settings.content is True)

    def _langfuse(self, exports: ExitStack) -> list[Target]:
        """Langfuse gets what was said unless told otherwise: it is of little use without."""
        if (langfuse := self._settings.langfuse) is None:
            return []
        endpoint = f"{langfuse.url}/api/public/otel/v1/traces"
        # Without the version Langfuse takes minutes to show a trace. It wants what is said of a trace on every span, and it is.
        headers = {"Authorization": langfuse.authorization, "x-langfuse-ingestion-version": "4"}
        export = Exporting(endpoint, headers, receiver="langfuse")
        exports.callback(export.close)
        return _target(export.provider, LangfuseDialect(langfuse.stage), content=self._settings.content is not False)


def _watching(targets: Callable[[], Sequence[Target]]) -> Middleware:
    def wrap(handler: RunHandler) -> RunHandler:
        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            watch = _Watch(targets(), run)
            run.endings.append(watch.end)
            async with aclosing(handler(watch.entered(run))) as events:
                async for event in events:
                    watch.feed(event)
                    yield event

        return handle

    return wrap


class _Watch:
    """One run's traces. The first failure ends the watching: a fault of ours is logged once and costs nothing more."""

    def __init__(self, targets: Sequence[Target], run: Run) -> None:
        self._traces: list[Trace] = []
        with isolate("beginning to trace a run"):
            self._traces = [Trace(target, run) for target in targets]

    def entered(self, run: Run) -> Run:
        """The run, known to be traced. It has a task of its own: what its framework traces by itself becomes part of this trace."""
        if not self._traces:
            return run
        root = self._traces[0].root
        context.attach(otel.set_span_in_context(root))
        traced = replace(run, span=reference(root))
        enter_run(traced)
        return traced

    def feed(self, event: Event) -> None:
        # Nearly all events are deltas of something open, and these lines are their whole cost.
        if type(event) in UNSEEN:
            return
        for trace in self._traces:
            if not trace.hears(event):
                break
        else:
            return
        traces, self._traces = self._traces, []
        with isolate("tracing a run"):
            for trace in traces:
                trace.feed(event)
            self._traces = traces

    def end(self, terminal: Terminal) -> None:
        for trace in self._traces:
            trace.end(terminal)


def _target(provider: otel.TracerProvider, dialect: Dialect, *, content: bool) -> list[Target]:
    """The target this provider is; none when OpenTelemetry is switched off (OTEL_SDK_DISABLED)."""
    if not isinstance(provider, TracerProvider):
        raise ConfigError("Give tracing() a TracerProvider of opentelemetry-sdk.")
    tracer = provider.get_tracer("ambient_runner")
    if not isinstance(tracer, Tracer):
        return []
    if not isinstance(tracer.id_generator, SpanIds):
        tracer.id_generator = SpanIds(tracer.id_generator)
    return [Target(tracer=tracer, dialect=dialect, content=content)]
