"""The fields that name a run, its thread and its agent in a line of the log."""

from __future__ import annotations

__all__ = ["log_context"]


def log_context(run: str, thread: str, agent: str) -> dict[str, str]:
    """Return the `extra` of a log line about a run that is written outside of the run's task (`telemetry/log_format.py`)."""
    return {"ambient_run": run, "ambient_thread": thread, "ambient_agent": agent}
