"""Faults in the system calls of a running server, injected by strace: a slow disk, or one that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["injected", "needs_strace"]


def _can_trace() -> bool:
    """Return True if strace is there and may attach to a process of ours."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return done.returncode == 0


needs_strace = pytest.mark.skipif(
    not _can_trace(), reason="strace is not installed, or may not trace: no faults of the disk"
)


@contextmanager
def injected(pid: int, fault: str) -> Generator[None]:
    """Inject a fault into all threads of a process, in strace's syntax (`fdatasync:error=EIO`), for the time of a `with` block.

    Raises: AssertionError if no system call was affected meanwhile.
    """
    calls = fault.partition(":")[0]
    with tempfile.NamedTemporaryFile("r") as log:
        command = ["strace", "-f", "-p", str(pid), "-e", f"trace={calls}", "-e", f"inject={fault}", "-o", log.name]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        try:
            attached = tracer.stderr.readline()
            assert "attached" in attached, attached
            yield
        finally:
            tracer.terminate()
            tracer.stderr.close()
            tracer.wait(HANG_SECONDS)
        assert any("INJECTED" in line or "DELAYED" in line for line in log), f"no call of {calls} was made"
