"""M8: the files of the store are deleted, replaced or overwritten under a running server. Nothing may be answered 200 that is then lost."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from ambient_runner.errors import LedgerError, StoreUnusable
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from ambient_runner.ledger.sqlite.backup import backup_database
from tests.e2e.server import AMBIENT, start
from tests.e2e.sse import Truncated, open_stream
from tests.e2e.talk import new_id, run_input
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
PAGE = 4096
COUNTING = "count 100000 every 5ms"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "ambient.db"


def delete(store: Path) -> None:
    store.unlink()


def delete_with_its_log(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        store.with_name(f"{store.name}{suffix}").unlink()


def delete_its_log(store: Path) -> None:
    store.with_name(f"{store.name}-wal").unlink()


def delete_its_index(store: Path) -> None:
    store.with_name(f"{store.name}-shm").unlink()


def replace(store: Path) -> None:
    """Put another database of this program in its place, as a restore under a running server does."""
    other = store.with_name("other.db")
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)
    other.replace(store)


def truncate(store: Path) -> None:
    os.truncate(store, 0)


def truncate_its_log(store: Path) -> None:
    os.truncate(store.with_name(f"{store.name}-wal"), 0)


def copy_file(store: Path, target: Path) -> None:
    target.write_bytes(store.read_bytes())


def destroy_pages(store: Path) -> None:
    """Overwrite everything but the first page, which has the header that SQLite compares."""
    size = store.stat().st_size
    with store.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xff" * (size - PAGE))


async def begin_run(ledger: SqliteLedger) -> None:
    async with await ledger.acquire_lease(KEY, "run-1") as writer:
        await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)


@pytest.mark.parametrize("fault", [delete_with_its_log, delete_its_index, replace, truncate, truncate_its_log])
async def test_m8_a_server_whose_file_is_gone_answers_503_and_ends_its_streams(
    store: Path, fault: Callable[[Path], None]
) -> None:
    thread = new_id("thread")
    with start(store) as server, unless_hung():
        async with (
            open_stream(f"{server.url}/", "POST", body=run_input(thread, COUNTING)) as of_run,
            open_stream(f"{server.url}/threads/{thread}/events") as of_thread,
            httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client,
        ):
            await of_run.until("TEXT_MESSAGE_CONTENT")
            fault(store)
            answer = await client.post("/", json=run_input(new_id("thread"), "hello"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
            answer = await client.get(f"/message_snapshot/{thread}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
            for stream in (of_run, of_thread):
                with pytest.raises(Truncated):  # Half a run must not look like a whole one.
                    await stream.rest()
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "store_unavailable")
        assert server.stop() == 0
    assert "CRITICAL" in server.output
    assert str(store) in server.output.partition("CRITICAL")[2]
    assert store.exists() == (fault is not delete_with_its_log)


async def test_m8_an_idle_server_notices_that_its_file_is_gone(store: Path) -> None:
    with start(store) as server, unless_hung():
        delete(store)
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
            while (await client.get("/ready")).status_code == 200:
                pass


@pytest.mark.parametrize(
    "fault", [delete, delete_with_its_log, delete_its_log, delete_its_index, replace, truncate, truncate_its_log]
)
async def test_m8_a_ledger_whose_file_is_gone_refuses_reads_and_writes(
    store: Path, fault: Callable[[Path], None]
) -> None:
    async with SqliteLedger(store) as ledger, await ledger.acquire_lease(KEY, "run-1") as writer:
        await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        fault(store)
        writer.append(b"lost")
        with unless_hung(), pytest.raises(LedgerError):
            await writer.flush()
        assert ledger.unavailable_reason() is not None
        with pytest.raises(LedgerError):
            await ledger.get_thread(KEY)
        with pytest.raises(LedgerError):
            await ledger.acquire_lease(KEY._replace(id="other"), "run-2")


async def test_m8_a_second_server_does_not_start_if_it_shares_no_index_with_the_first(store: Path) -> None:
    """Locks are in the index (-shm): with one each, two servers overwrite what the other has stored."""
    serve = [AMBIENT, "serve", "demo", "--port", "0", "--store", f"sqlite:///{store}"]
    with start(store) as server, unless_hung():
        delete_its_index(store)
        for _ in range(2):  # The first attempt creates a new index, the second finds it.
            second = await anyio.run_process(serve, check=False, stderr=subprocess.STDOUT)
            assert (second.returncode, f"pid {server.pid} " in second.stdout.decode()) == (2, True)
            assert b"Traceback" not in second.stdout
    with start(store) as server:
        pass


async def test_m8_a_store_in_which_a_read_found_damage_is_never_used_again(store: Path) -> None:
    """Only failed commits counted, and a commit on undamaged pages ended them: the server went on to write into a damaged file."""
    async with SqliteLedger(store) as ledger:
        await begin_run(ledger)
    # The log is empty except for this worker: other pages are read from the file.
    async with SqliteLedger(store) as ledger:
        destroy_pages(store)
        with unless_hung(), pytest.raises(StoreUnusable):
            await ledger.get_thread(KEY)
        assert ledger.unavailable_reason() is not None
        for _ in range(2):
            with unless_hung(), pytest.raises(StoreUnusable):
                await ledger.acquire_lease(KEY, "run-2")
        assert ledger.unavailable_reason() is not None


async def test_m8_a_store_in_which_a_commit_found_damage_is_never_used_again(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log advised to free space on the disk, and said 0.1 s later that the store could be used again."""
    async with SqliteLedger(store) as ledger:
        await begin_run(ledger)
    async with SqliteLedger(store) as ledger:
        destroy_pages(store)
        for _ in range(2):
            with unless_hung(), pytest.raises(StoreUnusable):
                await ledger.acquire_lease(KEY, "run-2")
        assert ledger.unavailable_reason() is not None
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == ["CRITICAL"]


async def test_m8_a_file_that_was_truncated_is_never_used_again(store: Path) -> None:
    """`cp` truncates its target first: once it had written as much again, the server went on with the copy."""
    async with SqliteLedger(store, lease=0.3) as ledger:
        await begin_run(ledger)
        content = store.read_bytes()
        truncate(store)
        with unless_hung(), pytest.raises(StoreUnusable):
            await ledger.get_thread(KEY)
        store.write_bytes(content)
        with unless_hung(), pytest.raises(StoreUnusable):
            await ledger.get_thread(KEY)
        assert ledger.unavailable_reason() is not None


@pytest.mark.parametrize("copy", [copy_file, backup_database])
async def test_m8_a_file_that_was_overwritten_by_a_copy_is_never_used_again(
    store: Path, copy: Callable[[Path, Path], None]
) -> None:
    """A copy that is not smaller was taken for the file, and commits made a malformed mixture of the two."""
    async with SqliteLedger(store) as ledger:
        await begin_run(ledger)
    copy(store, older := store.with_name("older.db"))
    async with SqliteLedger(store) as ledger:
        content = older.read_bytes()
        store.write_bytes(content + bytes(store.stat().st_size - len(content)))
        for _ in range(2):
            with unless_hung(), pytest.raises(StoreUnusable):
                await ledger.acquire_lease(KEY, "run-2")
            with unless_hung(), pytest.raises(StoreUnusable):
                await ledger.get_thread(KEY)
        assert ledger.unavailable_reason() is not None


@pytest.mark.parametrize("kept", [0, 32, 0.5])
async def test_m8_a_log_that_was_truncated_is_never_used_again(store: Path, kept: float) -> None:
    """SQLite went on to write after the end of the log: the next start found no valid frame in it."""
    log = store.with_name(f"{store.name}-wal")
    async with SqliteLedger(store) as ledger:
        await begin_run(ledger)
        size = log.stat().st_size
        os.truncate(log, kept if isinstance(kept, int) else int(size * kept))
        with unless_hung(), pytest.raises(StoreUnusable):
            await ledger.acquire_lease(KEY, "run-2")
        os.truncate(log, size)
        with unless_hung(), pytest.raises(StoreUnusable):
            await ledger.get_thread(KEY)
        assert ledger.unavailable_reason() is not None


async def test_m8_a_log_that_sqlite_truncates_is_no_fault(store: Path) -> None:
    """Erasure empties the log, also that of other processes, while commits and reads go on."""
    keys = [KEY._replace(id=f"trip-{number}") for number in range(20)]

    async def fill(ledger: SqliteLedger, thread: ThreadKey) -> None:
        async with await ledger.acquire_lease(thread, "run-1") as writer:
            await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
        assert await ledger.get_thread(thread) is not None

    async with SqliteLedger(store) as ledger:
        with unless_hung():
            for key in keys:
                await fill(ledger, key)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ledger.erase_thread, key)
                    tasks.start_soon(fill, ledger, key._replace(owner="bob"))
        assert ledger.unavailable_reason() is None


async def test_m8_a_file_that_was_moved_back_is_used_again(store: Path) -> None:
    away = store.with_name("away.db")
    async with SqliteLedger(store, lease=0.3) as ledger:
        async with await ledger.acquire_lease(KEY, "run-1") as writer:
            await writer.begin_run([STARTED], run_id="r", agent="demo", claim=None)
            store.rename(away)
            writer.append(b"lost")
            with unless_hung(), pytest.raises(LedgerError):
                await writer.flush()
            assert ledger.unavailable_reason() is not None
        with pytest.raises(LedgerError):
            await ledger.get_thread(KEY)
        away.rename(store)
        with unless_hung():
            while ledger.unavailable_reason() is not None:
                await anyio.sleep(0.01)
            assert [run.key for run in await ledger.list_abandoned_runs()] == ["run-1"]
            async with await ledger.acquire_lease(KEY, "run-1") as writer:
                writer.append(b"closed")
                await writer.finish_run()
        stored = [line for batch in await ledger.read_batches(KEY, 0) for line in batch.lines]
    assert stored == [b"started", b"closed"]
