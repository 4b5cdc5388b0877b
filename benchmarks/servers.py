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
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
LISTENING = re.compile(r"Listening on http://127\.0\.0\.1:(\d+)")
START_SECONDS = 20.0

TITLES = {
    "adapter": "(a) EventEncoder",
    "sse": "(b) sse-starlette",
    "ambient": "(c) Ambient Runner",
    "bare": "(d) bare ASGI",
}


class ServerNotStarted(Exception):
    """A server did not start. The message has the end of its log."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server."""

    name: str
    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """Return user and system time so far, including child processes."""
        return sum(times.user + times.system for times in (process.cpu_times() for process in self._processes()))

    def rss(self) -> int:
        """Return the resident bytes, including child processes."""
        return sum(process.memory_info().rss for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@contextmanager
def start_servers(names: Sequence[str], scratch: Path) -> Generator[list[Server]]:
    """Start the named servers, and stop them at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(start_server(name, scratch)) for name in names]


@contextmanager
def start_server(name: str, scratch: Path, settings: Mapping[str, str] | None = None) -> Generator[Server]:
    """Start one server with these environment variables, and stop it at the end."""
    log, env = scratch / f"{name}-{uuid.uuid4().hex}.log", child_environment() | dict(settings or {})
    with log.open("wb") as output:
        child = subprocess.Popen(_command(name, scratch), stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield Server(name=name, port=_wait_for_port(child, log), process=psutil.Process(child.pid))
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _command(name: str, scratch: Path) -> list[str]:
    kind, _, sdk = name.partition("-")
    if kind == "published":
        return [str(ROOT / f".venv-{sdk}" / "bin" / "python"), "-m", "benchmarks.sdk", "serve", sdk]
    if kind == "receiver":
        return [sys.executable, "-m", "benchmarks.receiver"]
    store = f"sqlite:///{scratch / uuid.uuid4().hex}.db"
    if kind in {"redacted", "unredacted"}:
        return [sys.executable, "-m", "benchmarks.redacting_server", name, store]
    if kind == "shapes":
        return [sys.executable, "-m", "benchmarks.shapes", sdk, store]
    if kind != "ambient":
        return [sys.executable, "-m", "benchmarks.baselines", name]
    if sdk == "acp":
        agents = ["bench=benchmarks.agents:fake_acp_agent"]
    else:
        agents = [f"bench=benchmarks.sdk.bridges:{sdk}"] if sdk else ["demo", "bench=benchmarks.agents:TimedBridge"]
    return [str(Path(sys.executable).with_name("ambient")), "serve", *agents, "--port", "0", "--store", store]


def child_environment() -> dict[str, str]:
    """Return the environment in which a child process can import this package."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def _wait_for_port(child: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        if found := LISTENING.search(log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise ServerNotStarted(log.read_text()[-2000:])
