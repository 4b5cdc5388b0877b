"""A disk that is small enough to be filled: a file system in memory. The test is skipped for a user who may not mount one."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["fill_disk", "mounted_disk"]


@contextmanager
def mounted_disk(directory: Path, size: int) -> Generator[Path]:
    """Mount a file system of `size` bytes on a new directory for the time of a `with` block. Yields the directory."""
    if sys.platform != "linux":
        pytest.skip("the small file system that is filled here is one of Linux")
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill_disk(directory: Path) -> Path:
    """Write a file until the disk is full. Return the file."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast
