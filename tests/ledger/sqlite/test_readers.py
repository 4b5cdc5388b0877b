"""Readers that other processes know of: registered with the first one of a process, for as long as it is alive."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import anyio.lowlevel
import pytest

from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from tests.ledger.sqlite.test_thread_list import create_file_of_version
from tests.ledger.test_sqlite import Clock, rows
from tests.machine_speed import unless_hung

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
LEASE = 10.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def count_becomes(ledger: SqliteLedger, count: int) -> None:
    with unless_hung():
        while (info := await ledger.get_thread(KEY)) is None or info.readers != count:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def a_run(ledger: SqliteLedger) -> AsyncGenerator[None]:
    async with await ledger.acquire_lease(KEY, "run-1") as writer:
        await writer.begin_run([STARTED], run_id="client", agent="demo", claim=None)
        yield


async def test_a_reader_counts_for_the_process_that_writes(path: Path) -> None:
    async with SqliteLedger(path) as one, SqliteLedger(path) as two, a_run(one):
        async with one.tail(KEY, 0):
            async with two.tail(KEY, 0):
                await count_becomes(one, 1)
            await count_becomes(one, 0)
        assert rows(path, "SELECT * FROM reader") == []


async def test_a_process_that_only_reads_renews_what_it_registered(path: Path) -> None:
    clock = Clock()
    async with SqliteLedger(path, lease=LEASE, clock=clock) as one, SqliteLedger(path, lease=LEASE, clock=clock) as two:
        async with a_run(one), two.tail(KEY, 0):
            await count_becomes(one, 1)
            expiry = "SELECT max(expires) FROM worker WHERE id IN (SELECT worker FROM reader)"
            for _ in range(5):
                clock.now += LEASE / 2
                with unless_hung():
                    while rows(path, expiry) != [(clock.now + LEASE,)]:
                        await anyio.lowlevel.checkpoint()
            info = await one.get_thread(KEY)
            assert info is not None
            assert info.readers == 1


async def test_readers_of_a_process_that_went_silent_do_not_count(path: Path) -> None:
    clock = Clock()
    async with SqliteLedger(path, lease=LEASE, clock=clock) as one, SqliteLedger(path, lease=LEASE, clock=clock) as two:
        async with a_run(one), two.tail(KEY, 0):
            await count_becomes(one, 1)
            two.pause()
            clock.now += LEASE + 1
            await count_becomes(one, 0)


async def test_closing_and_erasing_leave_no_row(path: Path) -> None:
    async with SqliteLedger(path) as one:
        async with SqliteLedger(path) as two:
            async with a_run(one), two.tail(KEY, 0):
                await count_becomes(one, 1)
                await one.erase_thread(KEY)
                assert rows(path, "SELECT * FROM reader") == []
            async with a_run(one), two.tail(KEY, 0):
                await count_becomes(one, 1)
                await two.__aexit__(None, None, None)
                await count_becomes(one, 0)


async def test_a_store_without_the_table_gets_it(path: Path) -> None:
    with closing(create_file_of_version(path, 4)) as connection:
        connection.execute("INSERT INTO label (no, thread_no, title, searched) VALUES (1, 1, '', 'trip')")
        connection.execute(
            "INSERT INTO thread (no, tenant, owner, id, agent, epoch, created, updated, label) "
            "VALUES (1, 'acme', 'ann', 'trip', 'demo', 'epoch-12', 1, 1, 1)"
        )
        connection.commit()
    async with SqliteLedger(path) as ledger:
        async with ledger.tail(KEY, 0):
            await count_becomes(ledger, 1)
            async with a_run(ledger):
                assert [batch.lines for batch in await ledger.read_batches(KEY, 0)] == [[b"started"]]
