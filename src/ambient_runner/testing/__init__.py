"""Contracts as tests to run in a package of your own: see docs/how-to/bridge.md.

    from ambient_runner.testing import BridgeContract

    class TestMyBridge(BridgeContract):
        def create_bridge(self):
            return MyBridge(scripted_agent())

pytest collects the class; nothing here imports pytest.
"""

from __future__ import annotations

from ambient_runner.testing.bridge import BridgeContract
from ambient_runner.testing.frame_folds import fold_activities, fold_frames
from ambient_runner.testing.frame_safety import UnsafeFrame, verify_frame_safety

__all__ = ["BridgeContract", "UnsafeFrame", "fold_activities", "fold_frames", "verify_frame_safety"]
