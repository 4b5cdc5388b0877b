"""The fake command for the bridge contract."""

from __future__ import annotations

from ambient_runner.bridges.lines.bridge import LinesBridge
from tests.bridges.lines.world import fake_bridge


def scripted_bridge() -> LinesBridge:
    return fake_bridge()
