"""The fake agent for the bridge contract."""

from __future__ import annotations

from ambient_runner.bridges.acp.bridge import ACPBridge
from tests.bridges.acp.world import fake_bridge


def scripted_bridge() -> ACPBridge:
    return fake_bridge()
