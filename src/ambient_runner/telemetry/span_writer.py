"""`SpanWriter` writes the spans of one run: with the attributes common to all, redacted, and under the right parent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode

from ambient_runner.telemetry.span_ids import SpanIds
from ambient_runner.telemetry.span_text import redact_and_truncate, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import Span

    from ambient_runner.runs.run import Run
    from ambient_runner.telemetry.attributes import Attributes, SpanAttributes

__all__ = ["ExportTarget", "SpanWriter"]

_MAX_NAME = 300
"""Maximum characters of a name. Longer than any id a client may send: span ids are computed from them and must stay distinct."""
_MAX_ERROR = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportTarget:
    """A tracer, the attribute names its receiver wants, and whether spans include message and tool content."""

    tracer: Tracer
    attributes: SpanAttributes
    include_content: bool


class SpanWriter:
    """Writes spans of one run to one target."""

    def __init__(self, target: ExportTarget, run: Run) -> None:
        self._tracer = target.tracer
        self._attributes = target.attributes
        self._include_content = target.include_content
        self._secrets = run.secrets
        self._common = _encode_values(target.attributes.common_attributes(run))

    def start_span(
        self,
        name: str,
        parent: Span | SpanContext | None,
        own: Attributes,
        *,
        reserved: SpanContext | None = None,
        link: SpanContext | None = None,
        start: int | None = None,
    ) -> Span:
        """Start a span. `reserved` holds the ids it must have; `link` is an earlier span that it continues."""
        attributes = self._common | _encode_values(own)
        links = [Link(link)] if link else []
        if reserved is None:
            return self._tracer.start_span(
                name, _child_context(parent), attributes=attributes, links=links, start_time=start
            )
        with SpanIds.reserve(reserved):
            return self._tracer.start_span(
                name, _child_context(parent), attributes=attributes, links=links, start_time=start
            )

    def clean_name(self, text: str) -> str:
        """Return a name or id from the agent, redacted and truncated."""
        return redact_and_truncate(text, self._secrets, _MAX_NAME)

    def content_attributes(self, attribute: Callable[[str], Attributes], text: str) -> Attributes:
        """Return the text under the target's attribute name; nothing if content is not exported."""
        return attribute(redact_and_truncate(text, self._secrets)) if self._include_content and text else {}

    def set_error(self, span: Span, code: str, message: str) -> None:
        text = redact_and_truncate(message, self._secrets, _MAX_ERROR)
        span.set_status(Status(StatusCode.ERROR, text))
        span.set_attributes(_encode_values(self._attributes.error_attributes(self.clean_name(code), text)))

    def end_span(self, span: Span, attributes: Attributes | None = None, *, at: int | None = None) -> None:
        span.set_attributes(_encode_values(attributes or {}))
        span.end(at)


def _child_context(parent: Span | SpanContext | None) -> Context:
    """Return the context of a child span; an empty one for a root, so that no other library's current span becomes its parent."""
    if parent is None:
        return Context()
    span = NonRecordingSpan(parent) if isinstance(parent, SpanContext) else parent
    return otel.set_span_in_context(span, Context())


def _encode_values(attributes: Attributes) -> Attributes:
    return {name: replace_surrogates(value) if isinstance(value, str) else value for name, value in attributes.items()}
