"""The official clients judge every stream of the ADK tests: what the agents sent, before anything was repaired."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ambient_runner.protocol.events import Event, RunError, RunFinished

from .test_official_verifier import objections, pytestmark

__all__ = ["pytestmark"]

ROOT = Path(__file__).parent.parent.parent
FEWEST = 300
"""Streams, or something is wrong with how they are kept."""


def test_both_clients_accept_every_stream_of_the_adk_tests(tmp_path: Path) -> None:
    kept = tmp_path / "streams.ndjson"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/bridges/adk", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "STREAMS_OF_ADK_TESTS": str(kept)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    streams = [msgspec.json.decode(line, type=list[Event]) for line in kept.read_bytes().splitlines()]
    assert len(streams) > FEWEST
    assert {type(stream[-1]) for stream in streams} == {RunFinished, RunError}
    assert objections(streams) == []
