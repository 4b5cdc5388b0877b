"""The identity of a request, and the configuration of its lock."""

from __future__ import annotations

from ambient_runner.adk import InputInfo, SessionLockConfig

__all__ = ["InputInfo", "SessionLockConfig"]
