"""Identify this process, and detect that another one has ended: a lease whose process died on this host need not expire first.

Only certainty counts: where the platform cannot tell (no `/proc`, another pid namespace), the lease's expiry decides.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
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
    pid_namespace: str
    """Pids of another namespace cannot be compared."""


def this_process() -> Process:
    pid = os.getpid()
    return Process(pid, _start_time(pid) or "", _read_text(_PROC / "sys/kernel/random/boot_id"), _pid_namespace())


def has_ended(process: Process, me: Process) -> bool:
    """Return True if that process has certainly ended, as seen from `me`."""
    if process.boot != me.boot:
        return bool(process.boot and me.boot)
    return _can_be_looked_up(process, me) and _start_time(process.pid) != process.started


def is_running(process: Process, me: Process) -> bool:
    """Return True if that process certainly runs, as seen from `me`. If neither this nor `has_ended` is True, nobody can tell."""
    return _can_be_looked_up(process, me) and _start_time(process.pid) == process.started


def list_open_files(process: Process) -> set[tuple[int, int]]:
    """Return the device and inode of each file that a process has open; nothing if this process may not know."""
    files = set[tuple[int, int]]()
    with suppress(OSError):
        for descriptor in (_PROC / str(process.pid) / "fd").iterdir():
            with suppress(OSError):  # It was closed meanwhile.
                files.add(file_identity(descriptor.stat()))
    return files


def file_identity(file: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file: another file at the same path differs in one of them."""
    return file.st_dev, file.st_ino


def describe_process(process: Process) -> str:
    """Return the pid and the start time of a process, for messages."""
    ticks, boot_time = process.started, _boot_time()
    if not ticks.isdigit() or boot_time is None:
        return f"pid {process.pid}"
    since = datetime.fromtimestamp(boot_time + int(ticks) / os.sysconf("SC_CLK_TCK")).astimezone()
    return f"pid {process.pid} (since {since:%Y-%m-%d %H:%M:%S})"


def _can_be_looked_up(process: Process, me: Process) -> bool:
    is_known = bool(process.started and me.started)
    return is_known and process.boot == me.boot and process.pid_namespace == me.pid_namespace


def _start_time(pid: int) -> str | None:
    """Return the start time of a process; None if there is no such process, or it is a zombie."""
    # The command name may contain spaces and brackets, so fields are counted from the last bracket.
    _, _, rest = _read_text(_PROC / str(pid) / "stat").rpartition(")")
    fields = rest.split()
    if not fields or fields[0] in ("Z", "X"):
        return None
    return fields[19]


def _boot_time() -> int | None:
    """Return the time of the boot in seconds since 1970; None if the platform does not provide it."""
    lines = _read_text(_PROC / "stat").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)


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
