"""A child process and what it writes, for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil

from ambient_runner.processes.child import ChildProcess
from ambient_runner.processes.orphan_reaper import MARK
from tests.machine_speed import unless_hung

__all__ = ["Recorder", "gone", "marked", "python", "running"]

ENVIRONMENT = {"PATH": os.defpath}


class Recorder:
    """What a child process has written, and how often its end was reported."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.ends = 0
        self._changed = anyio.Event()

    def on_output(self, data: bytes) -> None:
        assert not self.ends
        self.output += data
        self._notify()

    def on_exit(self) -> None:
        self.ends += 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, text: bytes) -> None:
        with unless_hung():
            while text not in self.output:
                await self._changed.wait()

    async def until_end(self) -> None:
        with unless_hung():
            while not self.ends:
                await self._changed.wait()


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


@asynccontextmanager
async def running(code: str, *arguments: str, **options: int) -> AsyncGenerator[tuple[ChildProcess, Recorder]]:
    """A Python program as a child process; it is ended with the block."""
    recorder = Recorder()
    child = await ChildProcess.start(
        python(code, *arguments),
        env=ENVIRONMENT,
        cwd=None,
        on_output=recorder.on_output,
        on_exit=recorder.on_exit,
        **options,
    )
    try:
        yield child, recorder
    finally:
        with unless_hung():
            await child.aclose()
        assert recorder.ends == 1
        assert not marked()


def marked(server: int | None = None) -> list[psutil.Process]:
    """Every process that this one, or that server, has started with a mark, and whatever those have started."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            variable = process.environ().get(MARK, "")
            if variable.startswith(f"{server or os.getpid()}-") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


async def gone(*processes: psutil.Process) -> None:
    """Wait until they have ended."""
    with unless_hung():
        while any(map(_is_running, processes)):
            await anyio.sleep(0.02)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descriptors() -> list[str]:
    """Return what the open descriptors of this process refer to."""
    found: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return sorted(found)
