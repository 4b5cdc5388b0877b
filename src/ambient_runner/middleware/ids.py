"""The ids of a run's spans. The trace has its id since admission, and the ids of the root and of every tool call can be computed again from
the run's key: so a run that answers an earlier one links to it, also after a restart and from another process.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext, TraceFlags

if TYPE_CHECKING:
    from collections.abc import Generator

    from ambient_runner.runs.run import Run

__all__ = ["SpanIds", "parent_of", "span_context", "span_id"]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2}).*")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
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
    if not _TRACE_ID.fullmatch(trace_id) or not int(trace_id, 16):
        return None
    return SpanContext(
        int(trace_id, 16), span_id(run, call), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def parent_of(run: Run) -> SpanContext | None:
    """The caller's span, when its `traceparent` named this run's trace."""
    found = _TRACEPARENT.fullmatch(run.traceparent)
    if found is None or found[1] != run.trace_id or not int(found[2], 16):
        return None
    return SpanContext(
        int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(int(found[3], 16) & 1)
    )
