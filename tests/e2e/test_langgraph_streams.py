"""LangGraph from outside: the official clients judge every stream of its tests, and the command line serves a graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest

from ambient_runner.protocol.events import RunError, RunFinished
from tests.bridges.langgraph.world import STREAMS
from tests.machine_speed import HANG_SECONDS

from .server import serving
from .streams import ROOT, streams_of
from .test_official_verifier import objections, pytestmark

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["pytestmark"]

FEWEST = 150
"""Streams, or something is wrong with how they are kept."""


@pytest.mark.timeout(1500)
def test_both_clients_accept_every_stream_of_the_langgraph_tests(tmp_path: Path) -> None:
    streams = streams_of("tests/bridges/langgraph", STREAMS, tmp_path, fewest=FEWEST)
    assert {type(stream[-1]) for stream in streams} == {RunFinished, RunError}
    assert objections(streams) == []


SERVED = """
from tests.bridges.langgraph.contract import scripted_graph

graph = scripted_graph()
"""


def test_the_command_line_serves_a_compiled_graph_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SERVED)
    with serving(tmp_path / "ambient.db", "mine=mine:graph", env={"PYTHONPATH": str(ROOT)}) as server:
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "u1", "role": "user", "content": "hi"}]}
        response = httpx.post(server.url, json={**body, "protocolVersion": "1.0"}, timeout=HANG_SECONDS)
    deltas = [json.loads(line[6:]).get("delta") for line in response.text.splitlines() if line.startswith("data: ")]
    assert [delta for delta in deltas if delta] == ["hello ", "there"]
