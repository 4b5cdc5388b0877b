from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ambient_runner.ledger.process_identity import is_gone, this_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

ME = this_process()


def test_this_process_is_here() -> None:
    assert not is_gone(ME, ME)


def test_a_recycled_pid_is_another_process() -> None:
    assert is_gone(replace(ME, started="1"), ME)


def test_another_boot_is_gone() -> None:
    assert is_gone(replace(ME, boot="another"), ME)


def test_what_cannot_be_known_is_not_gone() -> None:
    assert not is_gone(replace(ME, started="1", space="pid:[1]"), ME)
    assert not is_gone(replace(ME, started=""), ME)
    assert not is_gone(replace(ME, boot=""), ME)


def test_the_unreaped_remains_of_a_process_are_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        process = replace(ME, pid=child.pid, started=started)
        assert not is_gone(process, ME)
        child.kill()
        assert child.stdin
        # Waits for the end without reaping.
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            pass
        assert is_gone(process, ME)
