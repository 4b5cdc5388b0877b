"""The pauses of servers: the gaps that the timer of `heartbeat_agent.py` has written, for every server that is started meanwhile.

A gap carries the CPU time that the process used in it: a pause of 100 ms with 2 ms of CPU is another process's time on a busy machine,
one with 100 ms of CPU is the server's own work.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

AGENT = "heartbeat"
FILE_VARIABLE = "BENCH_HEARTBEAT"


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time in which the event loop ran no timers; the CPU time of the process in it, and of its garbage collector. In seconds."""

    seconds: float
    cpu: float
    collecting: float


class _Recording:
    """The directory in which servers write their gaps; None while nothing is recorded."""

    directory: Path | None = None


@contextmanager
def record_gaps() -> Generator[Path]:
    """Watch every `ambient serve` that is started meanwhile."""
    with tempfile.TemporaryDirectory(prefix="ambient-bench-") as name:
        _Recording.directory = Path(name)
        try:
            yield _Recording.directory
        finally:
            _Recording.directory = None


def read_gaps(directory: Path) -> list[Gap]:
    """Return the gaps of all servers so far."""
    return [Gap(**json.loads(line)) for file in directory.iterdir() for line in file.read_text().splitlines()]


def name_agents() -> list[str]:
    """Return the agents that `ambient serve` needs in order to be watched; none if nothing is recorded."""
    return [f"{AGENT}=benchmarks.heartbeat_agent:HeartbeatBridge"] if _Recording.directory else []


def heartbeat_settings(log_name: str) -> dict[str, str]:
    """Return the environment variables that a server needs in order to be watched."""
    return {FILE_VARIABLE: str(_Recording.directory / log_name)} if _Recording.directory else {}
