"""Sequence numbers of entries that several requests write in one transaction: each is given once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from tests.machine_speed import HANG_SECONDS, unless_hung

KEY = ThreadKey("acme", "ann", "trip")
OTHER = KEY._replace(id="other")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
NOTE = Fact(owner="ambient.feedback", kind="thumb", body=b"note")


async def run_once(ledger: SqliteLedger, key: ThreadKey) -> None:
    async with await ledger.acquire_lease(key, f"run-of-{key.id}") as writer:
        await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        await writer.finish_run()


@asynccontextmanager
async def one_transaction(ledger: SqliteLedger, store: Path) -> AsyncGenerator[TaskGroup, None]:
    """Yield a group of tasks whose writes the store commits together."""
    async with anyio.create_task_group() as tasks:
        with closing(sqlite3.connect(store, timeout=HANG_SECONDS, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            tasks.start_soon(ledger.append_facts, OTHER, [NOTE])  # The commit thread waits for the lock with this one.
            await anyio.wait_all_tasks_blocked()
            yield tasks
            await anyio.wait_all_tasks_blocked()
            other.execute("ROLLBACK")


async def read_entries(ledger: SqliteLedger) -> list[tuple[int, bytes]]:
    batches = await ledger.read_batches(KEY, 0)
    return [(batch.first + at, line) for batch in batches for at, line in enumerate(batch.lines)]


@pytest.mark.parametrize("facts", [1, 3])
async def test_a_fact_in_the_transaction_in_which_a_run_begins_has_a_number_of_its_own(
    tmp_path: Path, facts: int
) -> None:
    store = tmp_path / "ambient.db"
    async with SqliteLedger(store) as ledger:
        for key in (KEY, OTHER):
            await run_once(ledger, key)
        async with await ledger.acquire_lease(KEY, "run-2") as writer:

            async def begin_run() -> None:
                await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)

            with unless_hung():
                async with one_transaction(ledger, store) as tasks:
                    tasks.start_soon(begin_run)
                    for _ in range(facts):
                        tasks.start_soon(ledger.append_facts, KEY, [NOTE])
                writer.append(b"text")
                await writer.finish_run()
        entries = await read_entries(ledger)
    assert entries == list(enumerate([b"started", b"started", *[b"note"] * facts, b"text"], 1))


async def test_a_fact_in_the_transaction_in_which_a_run_is_recovered_has_a_number_of_its_own(tmp_path: Path) -> None:
    store = tmp_path / "ambient.db"
    async with SqliteLedger(store) as ledger:
        await run_once(ledger, OTHER)
        async with await ledger.acquire_lease(KEY, "abandoned") as writer:
            await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)

        async def recover() -> None:
            async with await ledger.acquire_lease(KEY, "abandoned") as writer:
                writer.append(b"text")
                await writer.finish_run()

        with unless_hung():
            async with one_transaction(ledger, store) as tasks:
                tasks.start_soon(recover)
                tasks.start_soon(ledger.append_facts, KEY, [NOTE])
        entries = await read_entries(ledger)
    assert entries == list(enumerate([b"started", b"note", b"text"], 1))
