"""Streams that other tests leave behind for the official clients to judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ambient_runner.protocol.events import Event

ROOT = Path(__file__).parent.parent.parent


def streams_of(tests: str, variable: str, folder: Path) -> list[list[Event]]:
    """Every stream of these tests. They are run in a process of their own, with a file for the streams named in `variable`."""
    kept = folder / "streams.ndjson"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, variable: str(kept)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return [msgspec.json.decode(line, type=list[Event]) for line in kept.read_bytes().splitlines()]
