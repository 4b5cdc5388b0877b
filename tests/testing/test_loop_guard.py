"""The guard of contract tests: what it must not report."""

from __future__ import annotations

import asyncio
import threading

from ambient_runner.testing.loop_guard import LoopMonitor
from tests.machine_speed import HANG_SECONDS


def test_a_loop_that_ends_while_the_monitor_looks_at_it_is_not_blocked() -> None:
    """The callback of the monitor was never called, and the test that waited for the monitor to end was reported."""
    loop, is_scheduled = asyncio.new_event_loop(), threading.Event()
    loop.call_soon_threadsafe = lambda *_: is_scheduled.set()  # type: ignore[method-assign]
    monitor = LoopMonitor(loop, timeout=0.1)
    monitor.start()
    assert is_scheduled.wait(HANG_SECONDS)
    monitor.stop()
    loop.close()
    assert monitor.report == ""
