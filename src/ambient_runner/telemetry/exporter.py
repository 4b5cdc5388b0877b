"""Export of spans: in batches, from a thread of its own, out of a bounded queue, so that no run waits for a receiver.

A receiver that is down or slow costs spans, the oldest first; the log says so once, and a counter counts them. A batch goes to the
configured address and no other. The status of a response is all that matters: its body is read, up to a bound, only to reuse a connection.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import Counter
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Exporting", "WarySession"]

logger = logging.getLogger(__name__)

LOST = Counter("ambient_spans_lost", "Spans that their receiver did not take, or a full queue forgot", ["receiver"])

_QUEUE = 2048
_QUEUE_MODULE = "opentelemetry.sdk._shared_internal"
_BATCH = 256
_EVERY = 1000.0
"""Milliseconds between two batches, as the SDK wants them."""
_TIMEOUT = 5.0
"""Seconds one batch may take."""
_LAST_WORDS = 3.0
"""Seconds a closing server gives to what has not been sent."""


class Exporting:
    """A tracer provider that sends to one OTLP endpoint."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, receiver: str) -> None:
        """`receiver` is its name in the log and in metrics. `headers` may hold credentials and are never logged."""
        session = WarySession(_TIMEOUT)
        self._exporter = _Counted(_quiet_exporter(endpoint, headers, session), session, receiver)
        self.provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self.provider.add_span_processor(_Bounded(self._exporter))

    def close(self) -> None:
        """Send what is left, for a few seconds at most. Blocks: call it from a thread."""
        sending = threading.Thread(target=self.provider.shutdown, name="ambient-last-spans", daemon=True)
        sending.start()
        sending.join(_LAST_WORDS)
        self._exporter.shutdown()


def _resource() -> Resource:
    """What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, which the SDK reads; our name where they say none."""
    found = Resource.create()
    named = not str(found.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: "ambient-runner"}))


def _quiet_exporter(endpoint: str, headers: Mapping[str, str], session: WarySession) -> SpanExporter:
    for name in (OTLPSpanExporter.__module__, _QUEUE_MODULE):
        chatter = logging.getLogger(name)
        if _is_not_ours not in chatter.filters:
            chatter.addFilter(_is_not_ours)
    return OTLPSpanExporter(
        endpoint=endpoint,
        headers=dict(headers) or None,
        timeout=_TIMEOUT,
        compression=Compression.Gzip,
        session=session,
    )


_ours = threading.local()


@contextmanager
def _quietly() -> Generator[None]:
    """Without the SDK's complaints, one for every batch and every span that is lost. Of ours we say so once."""
    _ours.exporting = True
    try:
        yield
    finally:
        _ours.exporting = False


def _is_not_ours(record: logging.LogRecord) -> bool:
    """What others export in this process is theirs to hear of."""
    return not getattr(_ours, "exporting", False)


class _Bounded(BatchSpanProcessor):
    """The SDK's queue, which forgets the oldest span when it is full. Here that is counted; the SDK would complain of each."""

    def __init__(self, exporter: _Counted) -> None:
        super().__init__(exporter, max_queue_size=_QUEUE, max_export_batch_size=_BATCH, schedule_delay_millis=_EVERY)
        self._counted = exporter

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        self._counted.waits()
        with _quietly():
            super().on_end(span)


class _Counted(SpanExporter):
    """Hands batches on and counts what is lost; the log hears when they stop to arrive and when they arrive again."""

    def __init__(self, exporter: SpanExporter, session: WarySession, receiver: str) -> None:
        self._exporter = exporter
        self._session = session
        self._receiver = receiver
        self._lost = LOST.labels(receiver)
        self._arrives = True
        self._closed = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0

    def waits(self) -> None:
        """Take note of a span that is put in the queue. One that finds it full takes the place of another."""
        with self._counting:
            is_full = self._waiting == _QUEUE
            self._waiting += not is_full
        if is_full:
            self._lost.inc()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._counting:
            self._waiting -= len(spans)
        result = SpanExportResult.FAILURE
        try:
            with _quietly():
                result = self._exporter.export(spans)
        finally:
            self._note(arrived=result is SpanExportResult.SUCCESS, count=len(spans))
        return result

    def _note(self, *, arrived: bool, count: int) -> None:
        if not arrived:
            self._lost.inc(count)
        if arrived != self._arrives and not self._closed.locked():
            self._arrives = arrived
            if arrived:
                logger.info("Traces arrive at %s again", self._receiver)
            else:
                logger.warning(
                    "Traces do not arrive at %s. Runs go on; their traces are lost until it takes them.%s",
                    self._receiver,
                    self._session.trouble,
                )

    def shutdown(self) -> None:
        if self._closed.acquire(blocking=False):
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


_LONGEST_ANSWER = 4096
_MOVED = " It answers with a redirect, which is not followed: the key would go along. Correct its address."


class WarySession(requests.Session):
    """What the SDK posts with. `trouble` is a sentence about the last answer, where more can be said than that it was no."""

    def __init__(self, seconds: float) -> None:
        """`seconds` are for one answer, from the request to its end."""
        super().__init__()
        self.trouble = ""
        self._seconds = seconds

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: `requests` would go there, and read all of this answer before."""
        return

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Raises: requests.TooManyRedirects for the first; it would pass as a success."""
        end = time.monotonic() + self._seconds
        answer = super().send(request, **(options | {"stream": True}))
        with answer, suppress(HTTPError):  # the status was heard
            _finish(answer, end)
        has_moved = 300 <= answer.status_code < 400
        self.trouble = _MOVED if has_moved else ""
        if has_moved:
            raise requests.TooManyRedirects
        return answer


def _finish(answer: requests.Response, end: float) -> None:
    """Byte by byte: asked for more, it would wait until so many have come."""
    for _ in range(_LONGEST_ANSWER):
        if time.monotonic() > end or not answer.raw.read(1, decode_content=False):
            return
