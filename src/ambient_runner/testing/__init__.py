"""Contracts as tests to run in a package of your own: see docs/how-to/bridge.md.

    from ambient_runner.testing import BridgeContract

    class TestMyBridge(BridgeContract):
        def create_bridge(self):
            return MyBridge(scripted_agent())

pytest collects the class; nothing here imports pytest.
"""

from __future__ import annotations

from ambient_runner.testing.bridge import BridgeContract

__all__ = ["BridgeContract"]
