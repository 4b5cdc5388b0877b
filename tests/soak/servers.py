"""The three servers of the soak. Each keeps its port when it is started again; the last one is never killed, so that growth can show."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.e2e.server import Child, start

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LEASE", "SLOW_READER", "Sample", "Server", "start_servers", "stop_servers"]

ROOT = Path(__file__).parent.parent.parent
LEASE = 1.0  # seconds
SLOW_READER = 3.0  # seconds
_SETTINGS = {
    "AMBIENT_LEASE": str(LEASE),
    "AMBIENT_HEARTBEAT": "1",
    "AMBIENT_SLOW_READER": str(SLOW_READER),
    "AMBIENT_STOP_GRACE": "1",
    "AMBIENT_RETAIN": "1000",
    # Full within minutes: memory that grows afterwards is a leak.
    "AMBIENT_VIEW_CACHE": "8MiB",
    "PYTHONPATH": str(ROOT),
}
_AGENTS = ("demo", "blocker=tests.soak.agents:block")


@dataclass(frozen=True)
class Sample:
    """Memory and descriptors of a process at a moment."""

    pid: int
    at: float
    rss: int
    descriptors: int


@dataclass
class Server:
    """A server that comes back. `lock` is held by the fault that is injected into it."""

    name: str
    store: Path
    port: int
    is_killable: bool
    child: Child | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    starts: int = 0
    samples: list[Sample] = field(default_factory=list[Sample])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, env: Mapping[str, str] = _SETTINGS) -> None:
        options = ["--port", str(self.port)]
        self.child = await asyncio.to_thread(lambda: start(self.store, *_AGENTS, env=env, options=options))
        self.starts += 1

    def send_signal(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.signal(number)

    async def wait(self) -> int:
        assert self.child is not None
        return await asyncio.to_thread(self.child.wait)

    def take_sample(self) -> None:
        """Measure the process, unless it has just ended."""
        if self.child is None or self.child.process.poll() is not None:
            return
        try:
            process = psutil.Process(self.child.pid)
            self.samples.append(Sample(process.pid, time.monotonic(), process.memory_info().rss, process.num_fds()))
        except psutil.Error:
            return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def start_servers(store: Path) -> list[Server]:
    """Start servers A, B and C. The first one migrates the store."""
    servers = [Server(name, store, _free_port(), is_killable=name != "C") for name in "ABC"]
    try:
        await servers[0].start()
        async with asyncio.TaskGroup() as tasks:
            for server in servers[1:]:
                tasks.create_task(server.start())
    except BaseException:
        await stop_servers(servers)
        raise
    return servers


async def stop_servers(servers: list[Server]) -> None:
    for server in servers:
        if server.child is not None and server.child.process.poll() is None:
            await asyncio.to_thread(server.child.kill)
