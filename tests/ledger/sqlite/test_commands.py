"""The leases that the commit thread remembers are still right after a rollback."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import LedgerError
from ambient_runner.ledger import SqliteLedger
from tests.ledger.test_sqlite import KEY, begin, lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.ledger.commit_thread import WriteCommands


async def test_an_erasure_that_is_rolled_back_does_not_end_the_run(tmp_path: Path) -> None:
    """The lease was remembered as lost although the thread was still there: its run died as if another process had taken over."""

    def erase_and_fail(writes: WriteCommands) -> None:
        assert writes.erase_thread(KEY)
        raise sqlite3.OperationalError("disk I/O error")

    async with SqliteLedger(tmp_path / "ledger.db") as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
        await begin(writer)
        with pytest.raises(LedgerError):
            await ledger._run_command(erase_and_fail)  # pyright: ignore[reportPrivateUsage]  no disk fails when it is asked to
        writer.append(b"a")
        await writer.flush()
        assert lines_of(await ledger.read_batches(KEY, 0)) == [(1, b"started"), (2, b"a")]
