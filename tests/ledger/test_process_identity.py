from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ambient_runner.ledger.process_identity import has_ended, this_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

ME = this_process()


def test_this_process_has_not_ended() -> None:
    assert not has_ended(ME, ME)


def test_a_recycled_pid_is_another_process() -> None:
    assert has_ended(replace(ME, started="1"), ME)


def test_a_process_of_another_boot_has_ended() -> None:
    assert has_ended(replace(ME, boot="another"), ME)


def test_a_process_of_unknown_state_has_not_ended() -> None:
    assert not has_ended(replace(ME, started="1", pid_namespace="pid:[1]"), ME)
    assert not has_ended(replace(ME, started=""), ME)
    assert not has_ended(replace(ME, boot=""), ME)


def test_a_zombie_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        process = replace(ME, pid=child.pid, started=started)
        assert not has_ended(process, ME)
        child.kill()
        assert child.stdin
        # Waits for the end without reaping.
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            pass
        assert has_ended(process, ME)
