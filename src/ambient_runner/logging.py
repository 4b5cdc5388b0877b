"""Logging for apps: formatters that put run, thread and agent on every line of a run, without secrets or control characters."""

from ambient_runner.telemetry.log_format import JsonFormatter, RunContextFilter, TextFormatter, configure_logging

__all__ = ["JsonFormatter", "RunContextFilter", "TextFormatter", "configure_logging"]
