"""Differences between the supported versions of ADK. The bridge reads no private names of ADK."""

from __future__ import annotations

from ambient_runner.bridges.toolkit.sdk import Sdk

__all__ = ["SDK"]

SDK = Sdk(package="google-adk", lowest="2.12.0", newest="2.13.0")
