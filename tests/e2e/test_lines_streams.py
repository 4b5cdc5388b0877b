"""The official clients judge the streams of the command tests: what the adapter sent, before anything was repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ambient_runner.protocol.events import RunError, RunFinished
from tests.bridges.lines.world import LINES_STREAMS

from .streams import streams_of
from .test_official_verifier import objections, pytestmark

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.protocol.events import Event

__all__ = ["pytestmark"]

FEWEST = 60
"""Streams, or something is wrong with how they are kept."""


@pytest.fixture
def streams(tmp_path: Path) -> list[list[Event]]:
    """Return the streams this session has recorded. Processes are expensive, so the tests run again only if it has none."""
    return streams_of("tests/bridges/lines", LINES_STREAMS, tmp_path, fewest=FEWEST)


@pytest.mark.timeout(1500)
def test_both_clients_accept_every_stream_of_the_lines_tests(streams: list[list[Event]]) -> None:
    assert {type(stream[-1]) for stream in streams} <= {RunFinished, RunError}
    assert objections(streams) == []
