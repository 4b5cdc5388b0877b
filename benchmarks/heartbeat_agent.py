"""The agent whose first run starts a timer in the served process: `ambient serve heartbeat=benchmarks.heartbeat_agent:HeartbeatBridge`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.base import FrameworkCapabilities, PlatformBridge, PlatformContext
from benchmarks.heartbeat import FILE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ag_ui.core import RunAgentInput

INTERVAL = 0.002  # seconds
_SMALLEST_GAP = 0.005  # seconds


class Heartbeat:
    """A timer that calls itself, and writes every gap between two calls that is longer than a few milliseconds.

    It is no task: it belongs to no run, and nothing waits for it when the server stops.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._collection_began = 0.0
        self._loop = asyncio.get_running_loop()
        gc.callbacks.append(self._note_collection)
        self._restart()

    def close(self) -> None:
        self._timer.cancel()
        gc.callbacks.remove(self._note_collection)
        self._file.close()

    def _restart(self) -> None:
        self._last, self._last_cpu, self._collecting = time.perf_counter(), time.process_time(), 0.0
        self._timer = self._loop.call_later(INTERVAL, self._beat)

    def _beat(self) -> None:
        seconds = time.perf_counter() - self._last - INTERVAL
        if seconds >= _SMALLEST_GAP:
            cpu = time.process_time() - self._last_cpu
            gap = {"seconds": seconds, "cpu": cpu, "collecting": self._collecting}
            self._file.write(json.dumps(gap) + "\n")
        self._restart()

    def _note_collection(self, phase: str, info: Any) -> None:
        if phase == "start":
            self._collection_began = time.perf_counter()
        else:
            self._collecting += time.perf_counter() - self._collection_began


class HeartbeatAdapter:
    """Starts the timer and yields nothing."""

    def __init__(self, bridge: HeartbeatBridge) -> None:
        self._bridge = bridge

    async def run(self, input: RunAgentInput) -> AsyncGenerator[Any]:  # noqa: A002  the adapter contract's name
        self._bridge.heartbeat = self._bridge.heartbeat or Heartbeat(Path(os.environ[FILE_VARIABLE]))
        return
        yield


class HeartbeatBridge(PlatformBridge):
    """Has one timer for the whole process."""

    heartbeat: Heartbeat | None = None

    def create_adapter(self, ctx: PlatformContext) -> HeartbeatAdapter:
        return HeartbeatAdapter(self)

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities(tool_use=False)
