"""`Pen`: writes the spans of one run. What stands on all of them, what may not be in any, and how they hang together is known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode

from ambient_runner.telemetry.span_ids import SpanIds
from ambient_runner.telemetry.span_text import shown, writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import Span

    from ambient_runner.runs.run import Run
    from ambient_runner.telemetry.attributes import Attributes, Dialect

__all__ = ["Pen", "Target"]

_NAME = 300
"""Longer than any id a client may send: ids of spans are made of these, and must differ where they do."""
_SENTENCE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where spans go, in whose words, and whether what was said goes along."""

    tracer: Tracer
    dialect: Dialect
    content: bool


class Pen:
    """Writes spans of one run to one target."""

    def __init__(self, target: Target, run: Run) -> None:
        self._tracer = target.tracer
        self._dialect = target.dialect
        self._content = target.content
        self._secrets = run.secrets
        self._everywhere = _writable(target.dialect.everywhere(run))

    def begin(
        self,
        name: str,
        parent: Span | SpanContext | None,
        about: Attributes,
        *,
        own: SpanContext | None = None,
        link: SpanContext | None = None,
        start: int | None = None,
    ) -> Span:
        """A span that goes on. `own` is the id it has been promised; `link` another span that it continues."""
        attributes = self._everywhere | _writable(about)
        links = [Link(link)] if link else []
        if own is None:
            return self._tracer.start_span(name, _inside(parent), attributes=attributes, links=links, start_time=start)
        with SpanIds.promising(own):
            return self._tracer.start_span(name, _inside(parent), attributes=attributes, links=links, start_time=start)

    def name(self, text: str) -> str:
        """A name or an id that the agent made up, fit for a span."""
        return shown(text, self._secrets, _NAME)

    def words(self, named: Callable[[str], Attributes], text: str) -> Attributes:
        """What was said, under the name the dialect has for it; nothing when words stay at home."""
        return named(shown(text, self._secrets)) if self._content and text else {}

    def fail(self, span: Span, code: str, message: str) -> None:
        said = shown(message, self._secrets, _SENTENCE)
        span.set_status(Status(StatusCode.ERROR, said))
        span.set_attributes(_writable(self._dialect.failed(self.name(code), said)))

    def close(self, span: Span, about: Attributes | None = None, *, at: int | None = None) -> None:
        span.set_attributes(_writable(about or {}))
        span.end(at)


def _inside(parent: Span | SpanContext | None) -> Context:
    """The context of a child; an empty one for a root, so that a span of someone else's is not taken for its parent."""
    if parent is None:
        return Context()
    span = NonRecordingSpan(parent) if isinstance(parent, SpanContext) else parent
    return otel.set_span_in_context(span, Context())


def _writable(about: Attributes) -> Attributes:
    return {name: writable(value) if isinstance(value, str) else value for name, value in about.items()}
