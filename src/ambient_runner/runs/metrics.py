"""Metrics of runs, for `GET /metrics`. Those of requests are in `server/metrics.py`. A thread, run or user is never a label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from ambient_runner.protocol.events import outcome_name

if TYPE_CHECKING:
    from ambient_runner.runs.active import ActiveRun

OUTCOMES = ("success", "interrupt", "cancelled", "error", "abandoned", "lost")

RUNS = Counter("ambient_runs", "Runs that ended, by outcome", ["outcome"])
RUNS_ACTIVE = Gauge("ambient_runs_active", "Runs in this process now")
RUN_SECONDS = Histogram(
    "ambient_run_seconds", "Duration of runs in seconds", buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600)
)
EVENTS = Counter("ambient_events_appended", "Events written to the ledger")
REPAIRS = Counter("ambient_repairs", "Repaired events of agents, by rule", ["rule"])
REDACTIONS = Counter("ambient_redactions", "Secrets redacted before writing, by event type", ["type"])
INPUT_LEFT_OUT = Counter("ambient_input_left_out", "Parts of inputs that did not reach the agent, by kind", ["kind"])
CLIENT_SECRETS = Counter(
    "ambient_client_secrets", "Secrets of the server in requests of clients, by source", ["source"]
)
LOOP_BLOCKED_SECONDS = Histogram(
    "ambient_loop_blocked_seconds",
    "Times in seconds in which code blocked the event loop, each of a second or longer",
    buckets=(2, 5, 10, 30, 60, 300),
)
RECOVERED = Counter("ambient_runs_recovered", "Abandoned runs closed by this process")
REPLAYS = Counter("ambient_idempotent_replays", "Requests answered with an earlier run")

OPERATOR_METRICS = frozenset({"ambient_redactions", "ambient_client_secrets"})
"""Metrics for operators only: they tell whether a value that somebody sent is a secret."""

# Created at zero, so that rate() sees the first increment.
for _outcome in OUTCOMES:
    RUNS.labels(_outcome)
for _kind in ("forwarded_props", "message"):
    INPUT_LEFT_OUT.labels(_kind)
for _source in ("input", "id", "state", "feedback", "upload"):
    CLIENT_SECRETS.labels(_source)


def record_run(active: ActiveRun, seconds: float) -> None:
    """Count a run that has ended, with its events, repairs and redactions. `seconds` is its duration."""
    RUNS_ACTIVE.dec()
    RUN_SECONDS.observe(seconds)
    EVENTS.inc(active.writer.appended_count)
    terminal = active.pipeline.terminal_event
    RUNS.labels(outcome_name(terminal) if terminal else "lost").inc()
    for rule, times in active.pipeline.repair_counts.items():
        REPAIRS.labels(rule).inc(times)
    for kind, times in active.pipeline.redaction_counts.items():
        REDACTIONS.labels(kind).inc(times)
