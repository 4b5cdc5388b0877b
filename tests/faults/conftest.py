"""Servers for the tests that only talk to them. Tests that inject a fault into a server start their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.server import serving, start
from tests.faults.loop_pauses import frozen_objects
from tests.machine_speed import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.e2e.server import Child
    from tests.faults.harness import Pair


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """A demo server on a SQLite file, shared by all tests: use thread ids of your own."""
    with serving(tmp_path_factory.mktemp("shared") / "ambient.db") as child:
        yield child


@pytest.fixture(scope="module")
def pair_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of `pair`."""
    return tmp_path_factory.mktemp("pair") / "ambient.db"


@pytest.fixture(scope="module")
def pair(pair_store: Path) -> Iterator[Pair]:
    """Two servers on one SQLite file, shared by the tests of a module: use thread ids of your own."""
    with start(pair_store) as a, start(pair_store) as b:
        yield a, b


@pytest.fixture(scope="module")
def frozen_test_objects() -> Iterator[None]:
    """Freeze the objects of all tests before once for the module: each measurement of pauses would scan them otherwise."""
    with frozen_objects():
        yield


@pytest.fixture
async def http(server: Child) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the shared server."""
    async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
        yield client
