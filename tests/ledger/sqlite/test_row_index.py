"""Rows are written first and placed later: whoever reads, writes, takes over or cleans up meanwhile must not notice."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from ambient_runner.errors import LeaseLost, LedgerError
from ambient_runner.ledger import Checkpoint, IdempotencyClaim, IdempotencyRecord, SqliteLedger
from ambient_runner.ledger.sqlite.row_index import SPAN_ROWS
from tests.ledger.test_sqlite import KEY, NOTE, Clock, begin, files_with, lines_of, rows, two_ledgers

if TYPE_CHECKING:
    from pathlib import Path

    from ambient_runner.ledger import Writer

LOOSE = (
    "SELECT count(*) FROM batch WHERE no NOT IN (SELECT value FROM place, json_each(rows)) AND thread_no IS NOT NULL"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "ledger.db"


async def say(writer: Writer, *lines: bytes) -> None:
    """Append, each line in a commit of its own."""
    for line in lines:
        writer.append(line)
        await writer.flush()


def numbered(*lines: bytes) -> list[tuple[int, bytes]]:
    return list(enumerate(lines, 1))


async def test_unindexed_rows_are_read_in_every_process(path: Path) -> None:
    async with two_ledgers(path) as (one, two), await one.acquire_lease(KEY, "run-1") as writer:
        await begin(writer)
        await say(writer, b"a", b"b")
        assert rows(path, LOOSE) == [(3,)]
        for ledger in (one, two):
            assert lines_of(await ledger.read_batches(KEY, 0)) == numbered(b"started", b"a", b"b")
            assert lines_of(await ledger.read_batches(KEY, 1, until=2)) == [(2, b"a")]
            info = await ledger.get_thread(KEY)
            assert info is not None
            assert info.last == 3
            assert [info.last for info in await ledger.list_threads("acme", "ann")] == [3]


async def test_a_long_run_is_indexed_as_it_goes_and_completely_when_it_is_released(path: Path) -> None:
    written = [b"%d" % number for number in range(SPAN_ROWS * 3)]
    async with SqliteLedger(path) as ledger:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            await say(writer, *written)
            assert rows(path, LOOSE)[0] < (SPAN_ROWS * 2,)
        assert rows(path, LOOSE) == [(0,)]
        assert lines_of(await ledger.read_batches(KEY, 0)) == numbered(b"started", *written)
        assert (
            lines_of(await ledger.read_batches(KEY, SPAN_ROWS + 5)) == numbered(b"started", *written)[SPAN_ROWS + 5 :]
        )


async def test_a_fact_of_another_process_between_unindexed_rows_is_indexed_with_them(path: Path) -> None:
    async with two_ledgers(path) as (one, two):
        async with await one.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            await say(writer, b"a")
            assert await two.append_facts(KEY, [NOTE]) == 3
            await say(writer, b"b")
            assert await one.append_facts(KEY, [NOTE]) == 5
        assert rows(path, LOOSE) == [(0,)]
        assert lines_of(await two.read_batches(KEY, 0)) == numbered(b"started", b"a", b"note", b"b", b"note")


async def test_a_fact_without_a_lease_is_indexed_at_once(path: Path) -> None:
    async with two_ledgers(path) as (one, two):
        async with await one.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
        assert await two.append_facts(KEY, [NOTE]) == 2
        assert rows(path, LOOSE) == [(0,)]
        assert lines_of(await one.read_batches(KEY, 0)) == numbered(b"started", b"note")


async def test_a_takeover_indexes_the_rows_of_a_dead_process(path: Path) -> None:
    clock = Clock()
    async with two_ledgers(path, clock) as (one, two), await one.acquire_lease(KEY, "run-1") as zombie:
        await begin(zombie)
        await say(zombie, b"a")
        one.pause()
        clock.now += 60
        async with await two.acquire_lease(KEY, "run-1") as heir:
            assert rows(path, LOOSE) == [(0,)]
            await say(heir, b"b")
            zombie.append(b"too late")
            with pytest.raises(LeaseLost):
                await zombie.flush()
        assert rows(path, LOOSE) == [(0,)]
        assert lines_of(await two.read_batches(KEY, 0)) == numbered(b"started", b"a", b"b")


async def test_a_rolled_back_transaction_leaves_no_row_unindexed(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            await say(writer, b"a")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TRIGGER broken BEFORE INSERT ON batch BEGIN SELECT RAISE(ABORT, 'no'); END")
            writer.append(b"lost")
            with pytest.raises(LedgerError):
                await writer.flush()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("DROP TRIGGER broken")
        assert rows(path, LOOSE) == [(0,)]
        assert lines_of(await ledger.read_batches(KEY, 0)) == numbered(b"started", b"a")


async def test_erasing_a_thread_erases_its_unindexed_rows(path: Path) -> None:
    async with two_ledgers(path) as (one, two), await one.acquire_lease(KEY, "run-1") as writer:
        await begin(writer)
        await say(writer, b"violet")
        assert await two.erase_thread(KEY)
        assert files_with(b"violet", path) == []
        assert rows(path, "SELECT count(*) FROM place") == [(0,)]


async def test_a_checkpoint_may_cover_unindexed_rows(path: Path) -> None:
    async with two_ledgers(path) as (one, two):
        async with await one.acquire_lease(KEY, "run-1") as writer:
            await begin(writer)
            await say(writer, b"a", b"b")
            await two.trim_thread(KEY, Checkpoint(seq=2, body=b"{}"))
            await say(writer, b"c")
            assert lines_of(await two.read_batches(KEY, 2)) == [(3, b"b"), (4, b"c")]
        assert lines_of(await two.read_batches(KEY, 2)) == [(3, b"b"), (4, b"c")]
        info = await two.get_thread(KEY)
        assert info is not None
        assert (info.first, info.last) == (3, 4)


async def test_many_runs_at_once_in_two_processes_keep_their_own_order(path: Path) -> None:
    seed = random.Random(7)
    keys = [KEY._replace(id=f"thread-{number}") for number in range(12)]
    async with two_ledgers(path) as ledgers:
        async with AsyncExitStack() as stack:
            writers = [
                await stack.enter_async_context(await ledgers[i % 2].acquire_lease(key, "r"))
                for i, key in enumerate(keys)
            ]
            for writer in writers:
                await begin(writer)
            written: list[list[bytes]] = [[b"started"] for _ in keys]
            for turn in range(600):
                which = seed.randrange(len(keys))
                writers[which].append(b"%d" % turn)
                written[which].append(b"%d" % turn)
                if turn % 3 == 0:
                    await writers[which].flush()
        for key, lines in zip(keys, written, strict=True):
            for ledger in ledgers:
                assert lines_of(await ledger.read_batches(key, 0)) == numbered(*lines)
        assert rows(path, LOOSE) == [(0,)]


async def test_a_store_of_the_first_schema_is_brought_up_to_date(path: Path) -> None:
    path.parent.mkdir()
    first = resources.files("ambient_runner.ledger.sqlite") / "migrations" / "0001_threads.sql"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(first.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA application_id = {0x414D4252}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO thread (no, tenant, owner, id, agent, epoch, created, updated) "
            "VALUES (1, 'acme', 'ann', 'trip', 'demo', 'epoch-12', 1, 1)"
        )
        connection.executemany(
            "INSERT INTO batch (thread_no, first, last, run, owner, kind, ts, body) VALUES (1, ?, ?, 'r', 'runtime', '', 1, ?)",
            [(1, 2, b"a\nb"), (3, 3, b"c")],
        )
        connection.execute(
            "INSERT INTO idempotency (scope, digest, used, tenant, owner, id, run) VALUES (?, 'd', ?, 'acme', 'ann', 'trip', 'r')",
            ("the key as it was sent", time.time_ns() // 1_000_000),
        )
        connection.commit()
    async with SqliteLedger(path) as ledger:
        hashed = IdempotencyClaim(scope=hashlib.sha256(b"the key as it was sent").hexdigest(), digest="d")
        found = await ledger.find_idempotency_record(KEY.tenant, hashed)
        assert found == IdempotencyRecord(digest="d", thread=KEY, run=None)
        assert lines_of(await ledger.read_batches(KEY, 0)) == numbered(b"a", b"b", b"c")
        async with await ledger.acquire_lease(KEY, "run-2") as writer:
            assert await writer.begin_run([NOTE], run_id="client", agent="demo", claim=None) == 4
