"""The contenders as child processes: how each is started, and what the operating system says it used."""

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


class NotStarted(Exception):
    """A contender did not start; its last words follow."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running contender."""

    name: str
    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """User and system time so far, children included."""
        used = [one.cpu_times() for one in (self.process, *self.process.children(recursive=True))]
        return sum(times.user + times.system for times in used)

    def rss(self) -> int:
        """Resident bytes, children included."""
        return sum(one.memory_info().rss for one in (self.process, *self.process.children(recursive=True)))


@contextmanager
def running(names: Sequence[str], scratch: Path) -> Generator[list[Server]]:
    """Start the named contenders side by side; all are gone afterwards."""
    with ExitStack() as stack:
        yield [stack.enter_context(started(name, scratch)) for name in names]


@contextmanager
def started(name: str, scratch: Path, settings: Mapping[str, str] | None = None) -> Generator[Server]:
    """Start one, with settings of its own in its environment; it is gone afterwards."""
    log, env = scratch / f"{name}-{uuid.uuid4().hex}.log", environment() | dict(settings or {})
    with log.open("wb") as output:
        child = subprocess.Popen(_command(name, scratch), stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield Server(name=name, port=_port(child, log), process=psutil.Process(child.pid))
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
    if kind != "ambient":
        return [sys.executable, "-m", "benchmarks.rivals", name]
    store = f"sqlite:///{scratch / uuid.uuid4().hex}.db"
    agents = [f"bench=benchmarks.sdk.bridges:{sdk}"] if sdk else ["demo", "bench=benchmarks.agents:TimedBridge"]
    return [str(Path(sys.executable).with_name("ambient")), "serve", *agents, "--port", "0", "--store", store]


def environment() -> dict[str, str]:
    """What a contender needs to find this package."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def _port(child: subprocess.Popen[bytes], log: Path) -> int:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and child.poll() is None:
        if found := LISTENING.search(log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise NotStarted(log.read_text()[-2000:])
