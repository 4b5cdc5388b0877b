"""Identify this process, and detect that another one has ended: a lease whose process died on this host need not expire first.

Only certainty counts: where the platform cannot tell (no `/proc`, another pid namespace), the lease's expiry decides.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """Identity of a process, comparable across processes. A field is empty if the platform does not provide it."""

    pid: int
    started: str
    """Start time in clock ticks since boot: it differs if the pid was reused."""
    boot: str
    """Random id of this boot of the machine."""
    space: str
    """The pid namespace: pids of another namespace cannot be compared."""


def this_process() -> Process:
    pid = os.getpid()
    return Process(pid, _start_time(pid) or "", _read_text(_PROC / "sys/kernel/random/boot_id"), _pid_namespace())


def has_ended(process: Process, me: Process) -> bool:
    """Return True if that process has certainly ended, as seen from `me`."""
    if process.boot != me.boot:
        return bool(process.boot and me.boot)
    if not process.started or not me.started or process.space != me.space:
        return False
    return _start_time(process.pid) != process.started


def _start_time(pid: int) -> str | None:
    """Return the start time of a process; None if there is no such process, or it is a zombie."""
    # The command name may contain spaces and brackets, so fields are counted from the last bracket.
    _, _, rest = _read_text(_PROC / str(pid) / "stat").rpartition(")")
    fields = rest.split()
    if not fields or fields[0] in ("Z", "X"):
        return None
    return fields[19]


def _pid_namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
