"""Export of spans in batches, from a separate thread and a bounded queue, so that no run waits for a receiver.

When a receiver is down or slow, spans are lost, the oldest first; this is logged once, and a metric counts them. A batch goes to the
configured address only: redirects are not followed. Only the status of a response is used; its body is read, up to a limit, so that the
connection can be reused.
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

__all__ = ["BoundedSession", "OtlpExporter"]

logger = logging.getLogger(__name__)

SPANS_LOST = Counter("ambient_spans_lost", "Spans that the receiver refused or that a full queue dropped", ["receiver"])

_QUEUE_SIZE = 2048
_QUEUE_MODULE = "opentelemetry.sdk._shared_internal"
_BATCH_SIZE = 256
_EXPORT_INTERVAL_MS = 1000.0
"""Milliseconds between two batches."""
_BATCH_TIMEOUT = 5.0
"""Seconds for one batch."""
_FLUSH_TIMEOUT = 3.0
"""Seconds for sending the queued spans when the server closes."""


class OtlpExporter:
    """A tracer provider that sends to one OTLP endpoint."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, receiver: str) -> None:
        """`receiver` is the name for the log and the metrics. `headers` may hold credentials and are never logged."""
        session = BoundedSession(_BATCH_TIMEOUT)
        self._exporter = _CountingExporter(_build_exporter(endpoint, headers, session), session, receiver)
        self.provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        self.provider.add_span_processor(_BoundedProcessor(self._exporter))

    def close(self) -> None:
        """Send the queued spans, for a few seconds at most. Blocks: call it from a thread."""
        flush = threading.Thread(target=self.provider.shutdown, name="ambient-last-spans", daemon=True)
        flush.start()
        flush.join(_FLUSH_TIMEOUT)
        self._exporter.shutdown()


def _build_resource() -> Resource:
    """Return the resource of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which the SDK reads, with our service name as the default."""
    resource = Resource.create()
    is_named = not str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service")
    return resource if is_named else resource.merge(Resource({SERVICE_NAME: "ambient-runner"}))


def _build_exporter(endpoint: str, headers: Mapping[str, str], session: BoundedSession) -> SpanExporter:
    for name in (OTLPSpanExporter.__module__, _QUEUE_MODULE):
        sdk_logger = logging.getLogger(name)
        if _is_not_muted not in sdk_logger.filters:
            sdk_logger.addFilter(_is_not_muted)
    return OTLPSpanExporter(
        endpoint=endpoint,
        headers=dict(headers) or None,
        timeout=_BATCH_TIMEOUT,
        compression=Compression.Gzip,
        session=session,
    )


_thread_state = threading.local()


@contextmanager
def _mute_sdk_log() -> Generator[None]:
    """Mute the SDK's log in this thread: it logs every lost batch and span, and this module logs a failing receiver once."""
    _thread_state.exporting = True
    try:
        yield
    finally:
        _thread_state.exporting = False


def _is_not_muted(record: logging.LogRecord) -> bool:
    """Log filter: pass records unless this thread is in `_mute_sdk_log`, so that other exporters in the process keep their log."""
    return not getattr(_thread_state, "exporting", False)


class _BoundedProcessor(BatchSpanProcessor):
    """The SDK's queue, which drops the oldest span when it is full. Dropped spans are counted instead of logged one by one."""

    def __init__(self, exporter: _CountingExporter) -> None:
        super().__init__(
            exporter,
            max_queue_size=_QUEUE_SIZE,
            max_export_batch_size=_BATCH_SIZE,
            schedule_delay_millis=_EXPORT_INTERVAL_MS,
        )
        self._exporter = exporter

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        self._exporter.count_queued()
        with _mute_sdk_log():
            super().on_end(span)


class _CountingExporter(SpanExporter):
    """Forwards batches and counts lost spans. Logs once when delivery starts to fail and once when it works again."""

    def __init__(self, exporter: SpanExporter, session: BoundedSession, receiver: str) -> None:
        self._exporter = exporter
        self._session = session
        self._receiver = receiver
        self._lost = SPANS_LOST.labels(receiver)
        self._is_delivering = True
        self._closed_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._queued = 0

    def count_queued(self) -> None:
        """Count a span that is about to be queued. In a full queue it replaces the oldest, which is counted as lost."""
        with self._count_lock:
            is_full = self._queued == _QUEUE_SIZE
            self._queued += not is_full
        if is_full:
            self._lost.inc()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._count_lock:
            self._queued -= len(spans)
        result = SpanExportResult.FAILURE
        try:
            with _mute_sdk_log():
                result = self._exporter.export(spans)
        finally:
            self._record_delivery(is_delivered=result is SpanExportResult.SUCCESS, count=len(spans))
        return result

    def _record_delivery(self, *, is_delivered: bool, count: int) -> None:
        if not is_delivered:
            self._lost.inc(count)
        if is_delivered != self._is_delivering and not self._closed_lock.locked():
            self._is_delivering = is_delivered
            if is_delivered:
                logger.info("Trace export to %s works again", self._receiver)
            else:
                logger.warning(
                    "Trace export to %s fails. Runs continue, but their traces are lost until the receiver accepts them again.%s",
                    self._receiver,
                    self._session.last_problem,
                )

    def shutdown(self) -> None:
        if self._closed_lock.acquire(blocking=False):
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


_MAX_BODY_BYTES = 4096
_REDIRECT_HINT = " It responds with a redirect, which is not followed, because that would send the key to another address. Correct its URL."


class BoundedSession(requests.Session):
    """The HTTP session of the SDK's exporter. `last_problem` describes the last response if more than its failure is known."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the time for one exchange, from the request to the end of the response."""
        super().__init__()
        self.last_problem = ""
        self._seconds = seconds

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None, so that `requests` neither follows a redirect nor reads its whole body."""
        return

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request. Raises: requests.TooManyRedirects for any redirect, which would pass as a success."""
        deadline = time.monotonic() + self._seconds
        response = super().send(request, **(options | {"stream": True}))
        with response, suppress(HTTPError):  # the status is known already
            _drain_body(response, deadline)
        is_redirect = 300 <= response.status_code < 400
        self.last_problem = _REDIRECT_HINT if is_redirect else ""
        if is_redirect:
            raise requests.TooManyRedirects
        return response


def _drain_body(response: requests.Response, deadline: float) -> None:
    """Read the rest of the body byte by byte: a larger read would block until that many bytes have arrived."""
    for _ in range(_MAX_BODY_BYTES):
        if time.monotonic() > deadline or not response.raw.read(1, decode_content=False):
            return
