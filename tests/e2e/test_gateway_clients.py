"""The official clients over a gateway: everything `test_clients.py` asks of a server, asked of one whose agent is behind another.

The gateway keeps the threads in SQLite; the runner behind it keeps nothing. The clients must not notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .gateway import pair
from .test_clients import *  # noqa: F403  the same tests and fixtures, with another `server`

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .server import Child


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with pair(tmp_path_factory.mktemp("pair")) as (gateway, _):
        yield gateway
