"""The ids of a run's spans. The trace has its id since admission, and the ids of the root and of every tool call can be computed again from
the run's key: so a run that answers an earlier one links to it, also after a restart and from another process.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext, TraceFlags, format_span_id, format_trace_id

from ambient_runner.runs.run import SpanRef

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from ambient_runner.runs.run import Run

__all__ = ["SpanIds", "parent_of", "reference", "span_context", "span_id"]

_next: ContextVar[SpanContext | None] = ContextVar("ambient_next_span", default=None)


class SpanIds(IdGenerator):
    """Gives the span that is about to start the ids it has been promised; all others get theirs from `others`."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others

    def generate_span_id(self) -> int:
        promised = _next.get()
        return promised.span_id if promised else self._others.generate_span_id()

    def generate_trace_id(self) -> int:
        promised = _next.get()
        return promised.trace_id if promised else self._others.generate_trace_id()

    @staticmethod
    @contextmanager
    def promising(context: SpanContext) -> Generator[None]:
        """The next span of this task is this one."""
        token = _next.set(context)
        try:
            yield
        finally:
            _next.reset(token)


def span_id(run: str, call: str = "") -> int:
    """The id of a run's root span, or of one of its tool calls."""
    digest = hashlib.sha256(f"{run}\n{call}".encode("utf-8", "replace") if call else run.encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def span_context(trace_id: str, run: str, call: str = "") -> SpanContext | None:
    """Where that span is, in whichever process it was made; None when there is no such trace."""
    if not trace_id:
        return None
    return SpanContext(
        int(trace_id, 16), span_id(run, call), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def parent_of(run: Run) -> SpanContext | None:
    """The caller's span, when the request named one."""
    caller = run.caller
    if caller is None:
        return None
    flags = TraceFlags(int(caller.sampled))
    return SpanContext(int(caller.trace_id, 16), int(caller.span_id, 16), is_remote=True, trace_flags=flags)


def reference(span: Span) -> SpanRef:
    """The span as others may be told of it."""
    context = span.get_span_context()
    return SpanRef(
        trace_id=format_trace_id(context.trace_id),
        span_id=format_span_id(context.span_id),
        sampled=context.trace_flags.sampled,
    )
