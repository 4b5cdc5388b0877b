"""The monitor of all open streams: how much it does before the event loop runs everything else."""

from __future__ import annotations

import asyncio
from collections import Counter

import anyio

from ambient_runner.server.stream_monitor import monitor_streams
from tests.machine_speed import unless_hung


class CountedStream:
    """A stream that counts its checks by iteration of the event loop."""

    def __init__(self, iterations: list[int], checks: Counter[int]) -> None:
        self._iterations = iterations
        self._checks = checks

    def finish(self) -> None:
        raise NotImplementedError

    def check_client(self, now: float, interval: float) -> None:
        self._checks[self._iterations[0]] += 1


async def test_pings_of_a_thousand_streams_are_sent_in_many_iterations_of_the_event_loop() -> None:
    """Those of 500 streams used to be sent at once: a pause of 15 ms."""
    iterations, checks = [0], Counter[int]()
    streams = [CountedStream(iterations, checks) for _ in range(1000)]
    with unless_hung():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: monitor_streams(streams, heartbeat=0.001, slow_reader=0.001))
            while checks.total() < 1000:
                await asyncio.sleep(0)
                iterations[0] += 1
            tasks.cancel_scope.cancel()
    assert max(checks.values()) <= 100
