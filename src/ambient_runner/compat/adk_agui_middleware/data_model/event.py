"""The result of a translate handler."""

from __future__ import annotations

from ambient_runner.adk import TranslateEvent

__all__ = ["TranslateEvent"]
