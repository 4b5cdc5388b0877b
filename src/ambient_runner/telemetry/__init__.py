"""Handlers that wrap handlers: what watches every run of a server without being part of any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ambient_runner.config import TracingSettings
    from ambient_runner.telemetry.tracing import Tracing

__all__ = ["tracing_of"]


def tracing_of(settings: TracingSettings) -> Tracing | None:
    """What these settings ask for; None when they name no place, and then nothing of OpenTelemetry is imported.

    Raises: ConfigError when OpenTelemetry is not installed.
    """
    if settings.otlp is None and settings.langfuse is None:
        return None
    from ambient_runner.telemetry.tracing import Tracing

    return Tracing(settings)
