"""Metrics of requests and event streams, for `GET /metrics`. Those of runs are in `runs/metrics.py`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REFUSALS = Counter("ambient_refusals", "Requests refused, by code", ["code"])
STREAMS = Gauge("ambient_streams_open", "Event streams open now")
RESUMES = Counter("ambient_stream_resumes", "Streams opened with a cursor, by result", ["result"])
SLOW_CLIENTS_DISCONNECTED = Counter(
    "ambient_slow_clients_disconnected", "Clients disconnected because they stopped reading a response"
)

# Created at zero, so that rate() sees the first increment.
for _result in ("exact", "gap", "refused"):
    RESUMES.labels(_result)
