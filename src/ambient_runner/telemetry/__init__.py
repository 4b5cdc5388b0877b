"""Tracing and logging of runs: they observe every run of a server and cannot change or fail one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.config import TracingSettings
    from ambient_runner.telemetry.tracing import Tracing

__all__ = ["tracing_from_settings"]


def tracing_from_settings(settings: TracingSettings) -> Tracing | None:
    """Return the tracing that these settings configure; None without a receiver, and then OpenTelemetry is not imported.

    Raises: ConfigError when OpenTelemetry is not installed.
    """
    if settings.otlp is None and settings.langfuse is None:
        return None
    from ambient_runner.telemetry.tracing import Tracing

    return Tracing(settings)
