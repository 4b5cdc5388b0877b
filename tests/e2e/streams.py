"""Streams that other tests leave behind for the official clients to judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ambient_runner.protocol.events import Event

ROOT = Path(__file__).parent.parent.parent


def streams_of(tests: str, told: list[list[Event]], directory: Path, *, fewest: int) -> list[list[Event]]:
    """Every stream of these tests: those this session has told already, or, where it has not run them, those of a process of their own."""
    if len(told) > fewest:
        return told
    kept = directory / "streams.ndjson"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", tests, "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "STREAMS_OF_TESTS": str(kept)},
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    streams = [msgspec.json.decode(line, type=list[Event]) for line in kept.read_bytes().splitlines()]
    assert len(streams) > fewest, "something is wrong with how they are kept"
    return streams
