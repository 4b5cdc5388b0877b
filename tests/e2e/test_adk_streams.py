"""The official clients judge every stream of the ADK tests: what the agents sent, before anything was repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ambient_runner.protocol.events import RunError, RunFinished
from tests.bridges.adk.world import STREAMS

from .streams import streams_of
from .test_official_verifier import objections, pytestmark

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["pytestmark"]

FEWEST = 300
"""Streams, or something is wrong with how they are kept."""


@pytest.mark.timeout(1500)
def test_both_clients_accept_every_stream_of_the_adk_tests(tmp_path: Path) -> None:
    streams = streams_of("tests/bridges/adk", STREAMS, tmp_path, fewest=FEWEST)
    assert {type(stream[-1]) for stream in streams} == {RunFinished, RunError}
    assert objections(streams) == []
