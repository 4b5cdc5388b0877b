from __future__ import annotations

import time
from pathlib import Path

import anyio
import anyio.lowlevel
from benchmarks.heartbeat import read_gaps
from benchmarks.heartbeat_agent import Heartbeat

from tests.machine_speed import unless_hung


async def test_work_that_holds_the_event_loop_is_a_gap_with_its_cpu_time(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path / "gaps")
    with unless_hung():
        await anyio.lowlevel.checkpoint()
        began = time.process_time()
        while time.process_time() - began < 0.05:
            pass
        while not any(gap.cpu >= 0.05 for gap in read_gaps(tmp_path)):
            await anyio.sleep(0.001)
    heartbeat.close()
    longest = max(read_gaps(tmp_path), key=lambda gap: gap.cpu)
    assert longest.seconds >= 0.04
