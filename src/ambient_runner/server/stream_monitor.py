"""One timer for all open streams of a server: it sends their pings in one go, and disconnects clients that have stopped reading.

A timer per stream would cost each of them memory and a wake-up of its task for every ping.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["MonitoredStream", "monitor_streams"]

_MAX_INTERVAL = 1.0  # seconds
_CHECKS_PER_TIMEOUT = 10
_STREAMS_PER_ITERATION = 100
"""Streams that are checked before other tasks may run. Often all their pings are due at once: those of 100 take some milliseconds."""


class MonitoredStream(Protocol):
    """An open response that can be ended from outside, and whose client is checked regularly."""

    def finish(self) -> None:
        """End the stream once it has sent everything available."""
        ...

    def check_client(self, now: float, interval: float) -> None:
        """Send a ping if one is due within `interval` seconds, and disconnect a client that has not read for too long. Must not block."""
        ...


async def monitor_streams(streams: Collection[MonitoredStream], *, heartbeat: float, slow_reader: float) -> None:
    """Check all streams again and again."""
    interval = min(_MAX_INTERVAL, min(heartbeat, slow_reader) / _CHECKS_PER_TIMEOUT)
    while True:
        await anyio.sleep(interval)
        for number, stream in enumerate(list(streams), 1):
            stream.check_client(time.monotonic(), interval)
            if not number % _STREAMS_PER_ITERATION:
                await anyio.lowlevel.checkpoint()
