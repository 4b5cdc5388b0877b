"""Who is this process, and is that other one still there? A lease whose owner died on this host need not wait for its time to run out.

Only certainty counts as death: where a platform cannot tell (no `/proc`, another pid namespace), the lease's time decides.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as others can recognise it. Empty strings are what the platform does not tell."""

    pid: int
    started: str
    """Start time in clock ticks since boot: a recycled pid has another one."""
    boot: str
    """Random id of this boot of the machine."""
    space: str
    """The pid namespace: pids of another one mean nothing here."""


def this_process() -> Process:
    pid = os.getpid()
    return Process(pid, _start_time(pid) or "", _text(_PROC / "sys/kernel/random/boot_id"), _namespace())


def is_gone(process: Process, me: Process) -> bool:
    """Whether that process has certainly ended, as seen from `me`."""
    if process.boot != me.boot:
        return bool(process.boot and me.boot)
    if not process.started or not me.started or process.space != me.space:
        return False
    return _start_time(process.pid) != process.started


def _start_time(pid: int) -> str | None:
    """None when there is no such process, or only its unreaped remains."""
    # The command name may hold spaces and brackets, so fields are counted from the last bracket.
    _, _, rest = _text(_PROC / str(pid) / "stat").rpartition(")")
    fields = rest.split()
    if not fields or fields[0] in ("Z", "X"):
        return None
    return fields[19]


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
