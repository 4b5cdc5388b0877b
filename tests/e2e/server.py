"""The real command line as a child process: started, watched until it listens, and ended by its own pid.

Nothing here reaches into the package: what the tests know of a server is its address, its output and its exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

AMBIENT = str(Path(sys.executable).with_name("ambient"))
LEASE = 1.0
_LISTENING = ("Listening on http", "Uvicorn running on http")


class Child:
    """A server process. It is running when made; `url` is where it listens. Leaving the `with` ends it."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AMBIENT_")}
        self.lines: list[str] = []
        self._listening: Future[str] = Future()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=inherited | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        try:
            self.url = self._listening.result(HANG_SECONDS)
        except FutureTimeout:
            self.kill()
            raise TimeoutError(f"the server did not say where it listens:\n{self.output}") from None

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self.lines.append(line)
                if any(words in line for words in _LISTENING) and not self._listening.done():
                    self._listening.set_result(_address(line))
        if not self._listening.done():
            self._listening.set_exception(RuntimeError(f"the server ended before it listened:\n{self.output}"))

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def wait(self, timeout: float = HANG_SECONDS) -> int:
        """Its exit code. Raises: subprocess.TimeoutExpired."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """Ask it to end, insist when it does not; gives its exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end within {HANG_SECONDS} s of SIGTERM:\n{self.output}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _address(line: str) -> str:
    return next(word for word in line.split() if word.startswith("http")).rstrip("/.,")


def start(
    store: Path,
    *agents: str,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    cwd: Path | None = None,
) -> Child:
    """`ambient serve` on a free port with this SQLite file; agents default to `demo`, the lease to one second."""
    command = [AMBIENT, "serve", *(agents or ("demo",)), "--port", "0", "--store", f"sqlite:///{store}", *options]
    return Child(command, cwd=cwd or store.parent, env={"AMBIENT_LEASE": str(LEASE), **(env or {})})


@contextmanager
def serving(store: Path, *agents: str, env: Mapping[str, str] | None = None) -> Generator[Child]:
    """A server for the time of a `with` block."""
    with start(store, *agents, env=env) as child:
        yield child
