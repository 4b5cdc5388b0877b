"""The official clients judge every stream in which set-up speaks: developer messages, events of our own, failures before the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import RunError, RunFinished

from .streams import streams_of
from .test_official_verifier import objections, pytestmark

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["pytestmark"]

SETUP = {"tests/services/test_setup.py": 20, "tests/services/test_setup_credentials.py": 5}
"""The tests of set-up, each with the fewest streams it leaves, or something is wrong with how they are kept."""


def test_both_clients_accept_every_stream_of_the_set_up_tests(tmp_path: Path) -> None:
    streams = [stream for tests, fewest in SETUP.items() for stream in streams_of(tests, [], tmp_path, fewest=fewest)]
    assert {type(stream[-1]) for stream in streams} == {RunFinished, RunError}
    assert objections(streams) == []
