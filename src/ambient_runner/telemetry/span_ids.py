"""Ids of a run's spans. The trace id is chosen at admission; the ids of the root span and of every tool call are computed from the run's
key, so that a run which resumes an earlier one can link to its spans, also after a restart and from another process.
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

__all__ = ["SpanIds", "parent_of", "span_context", "span_id", "span_reference"]

_reserved: ContextVar[SpanContext | None] = ContextVar("ambient_next_span", default=None)


class SpanIds(IdGenerator):
    """Gives the next span its reserved ids; all other spans get theirs from `fallback`."""

    def __init__(self, fallback: IdGenerator) -> None:
        self._fallback = fallback

    def generate_span_id(self) -> int:
        reserved = _reserved.get()
        return reserved.span_id if reserved else self._fallback.generate_span_id()

    def generate_trace_id(self) -> int:
        reserved = _reserved.get()
        return reserved.trace_id if reserved else self._fallback.generate_trace_id()

    @staticmethod
    @contextmanager
    def reserve(context: SpanContext) -> Generator[None]:
        """Give the next span of this task the ids of `context`."""
        token = _reserved.set(context)
        try:
            yield
        finally:
            _reserved.reset(token)


def span_id(run: str, call: str = "") -> int:
    """Return the id of a run's root span, or of one of its tool calls."""
    digest = hashlib.sha256(f"{run}\n{call}".encode("utf-8", "replace") if call else run.encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def span_context(trace_id: str, run: str, call: str = "") -> SpanContext | None:
    """Return the context of that span, whichever process created it; None if the run has no trace."""
    if not trace_id:
        return None
    return SpanContext(
        int(trace_id, 16), span_id(run, call), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def parent_of(run: Run) -> SpanContext | None:
    """Return the caller's span, if the request named one."""
    caller = run.caller
    if caller is None:
        return None
    flags = TraceFlags(int(caller.sampled))
    return SpanContext(int(caller.trace_id, 16), int(caller.span_id, 16), is_remote=True, trace_flags=flags)


def span_reference(span: Span) -> SpanRef:
    """Return the span's ids as a SpanRef."""
    context = span.get_span_context()
    return SpanRef(
        trace_id=format_trace_id(context.trace_id),
        span_id=format_span_id(context.span_id),
        sampled=context.trace_flags.sampled,
    )
