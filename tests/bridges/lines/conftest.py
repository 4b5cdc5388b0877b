"""Nothing of these tests may outlive them; and their streams are left in a file, when one is named, for the official clients to judge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.bridges.claude.world import children
from tests.bridges.lines.world import LINES_STREAMS


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = {process.pid for process in children()}
    yield
    assert [process.cmdline()[:1] for process in children() if process.pid not in before] == []


@pytest.fixture(scope="session", autouse=True)
def streams_are_kept() -> Iterator[None]:
    yield
    name = os.environ.get("STREAMS_OF_TESTS")
    if name:
        Path(name).write_bytes(b"".join(msgspec.json.encode(stream) + b"\n" for stream in LINES_STREAMS))
