"""Every store, opened fresh. A new store adds one line to STORES."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ambient_runner.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from ambient_runner.ledger import Ledger

STORES = {"memory": "memory://", "sqlite": "sqlite:///{directory}/ledger.db"}


@pytest.fixture(params=STORES)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Ledger, None]:
    async with open_ledger(STORES[request.param].format(directory=tmp_path)) as opened:
        yield opened
