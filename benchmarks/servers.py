"""The compared servers as child processes: how each is started, and its CPU time and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil

from benchmarks import heartbeat
from benchmarks.client import run_workload
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
LISTENING = re.compile(r"Listening on http://127\.0\.0\.1:(\d+)")
START_SECONDS = 60.0
AMBIENT = Path(sys.executable).with_name("ambient")
PEERS = ("pings", "sse_pings", "broadcast", "fastapi")

TITLES = {
    "adapter": "(a) EventEncoder",
    "sse": "(b) sse-starlette",
    "ambient": "(c) Ambient Runner",
    "bare": "(d) bare ASGI",
    "pings": "Starlette with pings",
    "sse_pings": "sse-starlette",
    "broadcast": "Starlette with a queue per reader",
}


class ServerNotStarted(Exception):
    """A server did not start. The message has the end of its log."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server."""

    name: str
    port: int
    process: psutil.Process
    store: Path | None = None
    """The database of `ambient serve`."""

    def cpu_seconds(self) -> float:
        """Return user and system time so far, including child processes."""
        return sum(_cpu_seconds(process) for process in self._processes())

    def rss(self) -> int:
        """Return the resident bytes, including child processes."""
        return sum(process.memory_info().rss for process in self._processes())

    def stored_bytes(self) -> int:
        """Return the size of the database, including what is not yet moved into it."""
        assert self.store
        return sum(file.stat().st_size for file in self.store.parent.glob(f"{self.store.name}*"))

    def _processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process: in nanoseconds on Linux, where psutil counts in ticks of 10 ms, more than a run costs."""
    if sys.platform == "linux":
        return time.clock_gettime(~process.pid << 3 | 2)  # What clock_getcpuclockid(3) returns.
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def start_servers(names: Sequence[str], scratch: Path) -> Generator[list[Server]]:
    """Start the named servers, and stop them at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(start_server(name, scratch)) for name in names]


@contextmanager
def start_server(
    name: str, scratch: Path, settings: Mapping[str, str] | None = None, *, store: Path | None = None
) -> Generator[Server]:
    """Start one server with these environment variables, and stop it at the end. `ambient serve` continues a store that exists."""
    if _Shared.stack and not settings and not store and not heartbeat.name_agents():
        yield _Shared.find_server(name)
        return
    with _run_server(name, scratch, settings or {}, store or scratch / f"{uuid.uuid4().hex}.db") as server:
        yield server


class _Shared:
    """Servers that several scenes use one after the other, if `share_servers` allows it."""

    stack: ExitStack | None = None
    scratch: Path
    servers: ClassVar[dict[str, Server]] = {}

    @classmethod
    def find_server(cls, name: str) -> Server:
        assert cls.stack
        if name not in cls.servers:
            store = cls.scratch / f"{name}.db"
            cls.servers[name] = cls.stack.enter_context(_run_server(name, cls.scratch, {}, store))
        return cls.servers[name]


@contextmanager
def share_servers(scratch: Path) -> Generator[None]:
    """Let scenes share the servers that need no settings of their own. For tests, which start dozens otherwise: figures mean nothing."""
    with ExitStack() as stack:
        _Shared.stack, _Shared.scratch = stack, scratch
        try:
            yield
        finally:
            _Shared.stack = None
            _Shared.servers.clear()


@contextmanager
def _run_server(name: str, scratch: Path, settings: Mapping[str, str], store: Path) -> Generator[Server]:
    log = scratch / f"{name}-{uuid.uuid4().hex}.log"
    env = child_environment() | heartbeat.heartbeat_settings(log.name) | dict(settings)
    with log.open("wb") as output:
        child = subprocess.Popen(_command(name, store), stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        port = _wait_for_port(child, log)
        if name.startswith("ambient") and heartbeat.name_agents():
            run_workload(port, Workload(count=1), f"/agents/{heartbeat.AGENT}")
        yield Server(name=name, port=port, process=psutil.Process(child.pid), store=store)
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _command(name: str, store: Path) -> list[str]:
    kind, _, sdk = name.partition("-")
    if kind == "published":
        return [str(published_python(sdk)), "-m", "benchmarks.sdk", "serve", sdk]
    if kind == "receiver":
        return [sys.executable, "-m", "benchmarks.receiver"]
    url = f"sqlite:///{store}"
    if kind in {"redacted", "unredacted"}:
        return [sys.executable, "-m", "benchmarks.redacting_server", name, url]
    if kind in PEERS:
        return [sys.executable, "-m", "benchmarks.peers", name]
    if name == "adapter-shapes":
        return [sys.executable, "-m", "benchmarks.shapes"]
    if kind != "ambient":
        return [sys.executable, "-m", "benchmarks.baselines", name]
    return [str(AMBIENT), "serve", *_name_agents(sdk), "--port", "0", "--store", url]


def _name_agents(sdk: str) -> list[str]:
    agents = {
        "": ["demo", "bench=benchmarks.agents:TimedBridge"],
        "acp": ["bench=benchmarks.agents:fake_acp_agent"],
        "shapes": ["bench=benchmarks.shapes:ShapesBridge"],
    }
    return [*agents.get(sdk, [f"bench=benchmarks.sdk.bridges:{sdk}"]), *heartbeat.name_agents()]


def published_python(sdk: str) -> Path:
    """Return the Python of the environment with the published adapter of an SDK."""
    return ROOT / f".venv-{sdk}" / "bin" / "python"


def child_environment() -> dict[str, str]:
    """Return the environment in which a child process imports this package, and the server of this checkout."""
    return os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}


def _wait_for_port(child: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        if found := LISTENING.search(log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise ServerNotStarted(log.read_text()[-2000:])
