"""The official clients judge every stream of the Strands tests: what the agents sent, before anything was repaired."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ambient_runner.protocol.events import Event, RunFinished

from .test_official_verifier import objections, pytestmark

__all__ = ["pytestmark"]

ROOT = Path(__file__).parent.parent.parent
FEWEST = 100
"""Streams, or something is wrong with how they are kept."""


def test_both_clients_accept_every_stream_of_the_strands_tests(tmp_path: Path) -> None:
    kept = tmp_path / "streams.ndjson"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/bridges/strands", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "STREAMS_OF_TESTS": str(kept)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    streams = [msgspec.json.decode(line, type=list[Event]) for line in kept.read_bytes().splitlines()]
    assert len(streams) > FEWEST
    assert any(isinstance(stream[-1], RunFinished) for stream in streams)
    assert objections(streams) == []
