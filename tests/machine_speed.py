"""Time in tests, on machines that may be busy.

A wait that only guards against hanging uses `unless_hung()` or `HANG_SECONDS`: it costs nothing when all is well. A promise with a time
in it ("within two leases") uses `promised_within()`: the time grows with how slow the machine is meanwhile. How a cost grows is
measured with `cpu_ratio()`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["HANG_SECONDS", "PROBE", "cpu_ratio", "promised_within", "scaled", "slowness", "unless_hung"]

HANG_SECONDS = 200.0
"""Nothing in a test takes that long, however busy the machine: less than pytest's own timeout, which knows less of the cause."""
PROBE = [sys.executable, "-S", "-E", "-c", "pass"]
_QUIET_START = 0.03  # seconds
"""The probe starts and ends within this time on a quiet machine."""
_QUIET_SYNC = 0.01  # seconds
"""A small file is written and synced within this time on a quiet machine."""
_SAMPLES = 3
_PAIRS = 7
"""Pairs of measurements of which the least ratio counts."""
_PAUSE = 0.1  # seconds
"""Between two measurements beside a block."""
_FRESH = 5.0  # seconds
"""A measurement is used again for so long."""
_measured: tuple[float, float] = (0.0, 1.0)


@contextmanager
def unless_hung() -> Generator[None]:
    """Fail a block that hangs."""
    with anyio.fail_after(HANG_SECONDS):
        yield


@contextmanager
def promised_within(seconds: float) -> Generator[None]:
    """Fail a block that takes longer than this, or than its multiple on a machine that is slow meanwhile.

    Once half of the time is over, the machine is measured until the block ends: afterwards, what slowed it may be gone.
    """
    began = time.monotonic()
    with unless_hung(), _measured_after(seconds / 2) as factors:
        yield
    took = time.monotonic() - began
    if took >= seconds:
        limit = _scale(seconds, max(factors, default=1.0))
        assert took < limit, f"took {took:.2f} s: promised were {seconds:.2f} s, {limit:.2f} s on a machine this busy"


@contextmanager
def _measured_after(seconds: float) -> Generator[list[float]]:
    """Measure how slow the machine is, again and again, from this time on until the block ends. Most blocks end before."""
    ended, factors = threading.Event(), list[float]()

    def measure() -> None:
        while not ended.wait(_PAUSE if factors else seconds):
            factors.append(_measure_slowness())

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    try:
        yield factors
    finally:
        ended.set()
        thread.join()


def scaled(seconds: float) -> float:
    """Return the time that on this machine, at this moment, stands for so many seconds on a quiet one.

    A busy machine gets twice its slowness: what is promised takes several turns of several processes.
    """
    return _scale(seconds, slowness())


def _scale(seconds: float, factor: float) -> float:
    return seconds if factor < 1.5 else seconds * 2 * factor


def cpu_ratio(large: Callable[[], object], small: Callable[[], object]) -> float:
    """Return the CPU time of `large` divided by that of `small`, the least of several pairs. Compare it with the ratio of their sizes.

    Each pair is measured at once, so that a machine that slows down slows both; a cost that grows too fast does so in every pair.
    """
    return min(_cpu_seconds(large) / _cpu_seconds(small) for _ in range(_PAIRS))


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def slowness() -> float:
    """Return how many times longer than on a quiet machine it takes to start a process, or to sync a file; 1 at least."""
    global _measured
    when, factor = _measured
    if time.monotonic() - when > _FRESH or when == 0.0:
        factor = max(_measure_slowness() for _ in range(_SAMPLES))
        _measured = (time.monotonic(), factor)
    return factor


def _measure_slowness() -> float:
    return max(1.0, _seconds_to_start() / _QUIET_START, _seconds_to_sync() / _QUIET_SYNC)


def _seconds_to_start() -> float:
    began = time.monotonic()
    subprocess.run(PROBE, check=True)
    return time.monotonic() - began


def _seconds_to_sync() -> float:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        began = time.monotonic()
        os.fsync(file.fileno())
        return time.monotonic() - began
