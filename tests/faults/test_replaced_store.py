"""M8: the store's file is deleted or replaced under a running server. Nothing may be answered 200 that is stored into nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from ambient_runner.errors import LedgerError
from ambient_runner.ledger import RUNTIME, Fact, SqliteLedger, ThreadKey
from tests.e2e.server import start
from tests.e2e.sse import Truncated, open_stream
from tests.e2e.talk import new_id, run_input
from tests.machine_speed import HANG_SECONDS, unless_hung

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = ThreadKey("acme", "ann", "trip")
STARTED = Fact(owner=RUNTIME, kind="RUN_STARTED", body=b"started")
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


def replace(store: Path) -> None:
    """Put another database of this program in its place, as a restore under a running server does."""
    other = store.with_name("other.db")
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)
    other.replace(store)


def truncate(store: Path) -> None:
    os.truncate(store, 0)


@pytest.mark.parametrize("fault", [delete_with_its_log, replace, truncate])
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


async def test_m8_an_idle_server_notices_it(store: Path) -> None:
    with start(store) as server, unless_hung():
        delete(store)
        async with httpx.AsyncClient(base_url=server.url, timeout=HANG_SECONDS) as client:
            while (await client.get("/ready")).status_code == 200:
                pass


@pytest.mark.parametrize("fault", [delete, delete_with_its_log, delete_its_log, replace, truncate])
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
